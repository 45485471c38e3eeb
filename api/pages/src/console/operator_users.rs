//! `/operator/users`: the users of the installation.

use askama::Template;
use crier_domain::brand::User;
use crier_endpoints::error::Result;
use crier_store::users;

use super::lists;
use super::operator::{shell, tabs};
use super::route::{Access, PageRoute};
use super::shared::{Choice, Pages, Time};
use super::shell::Shell;
use super::visit::{PageReply, Visit};

#[derive(Template)]
#[template(path = "console/operator_users.html")]
struct OperatorUsers {
    shell: Shell,
    users: Vec<UserRow>,
    pages: Pages,
}

struct UserRow {
    name: String,
    email: String,
    workspace: i64,
    plan: String,
    created: Time,
}

impl OperatorUsers {
    fn tabs(&self) -> Vec<Choice> {
        tabs("users")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/operator/users", list).access(Access::Operator)]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let all = users::list(&mut visit.app.store.read().await?).await?;
    let (rows, pages) = lists::paginate(visit, "/operator/users", all);
    let row = |user: User| UserRow {
        name: user.name,
        email: user.email,
        workspace: user.workspace_id,
        plan: user.plan,
        created: visit.time(user.created_at),
    };
    visit.page(&OperatorUsers { shell: shell(visit), users: rows.into_iter().map(row).collect(), pages })
}
