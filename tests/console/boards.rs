//! The boards of Pinterest in the composer.

use crier_domain::limits::{AccountLimits, Board};
use crier_domain::platform::Platform;
use crier_store::accounts::NewAccount;
use serde_json::{Value, json};

use super::link_cards::only_options;
use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::console::ConsoleUser;
use crate::support::store::new_account;

on_one_app!(a_board_is_chosen_by_its_name, a_board_that_is_not_in_the_list_is_kept, without_boards_the_id_is_typed,);

const BOARD: &str = "overrides.0.options.board";

async fn pinterest(t: &Tenant<'_>, boards: &[(&str, &str)]) -> String {
    let boards = boards.iter().map(|(id, name)| Board { id: (*id).to_owned(), name: (*name).to_owned() }).collect();
    let limits = Some(AccountLimits { boards, ..AccountLimits::default() });
    let new = NewAccount { platform: Platform::Pinterest, limits, ..new_account("643", "token") };
    t.store_account(&new).await.to_string()
}

/// Saves a draft with these values of the fields for the board, and returns its ID.
async fn save(person: &ConsoleUser<'_>, t: &Tenant<'_>, account: &str, path: &str, boards: &[&str]) -> String {
    let mut fields = vec![
        ("content", "Rye"),
        ("accounts", account),
        ("overrides.0.account_id", account),
        ("schedule_type", "draft"),
    ];
    fields.extend(boards.iter().map(|board| (BOARD, *board)));
    person.submit(path, path, &fields).await.expect(200, "Draft saved.");
    t.get(&t.path("/posts")).await.data(200)[0]["id"].to_string()
}

async fn a_board_is_chosen_by_its_name(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = pinterest(&t, &[("77", "Sourdough"), ("78", "Rye <b>& more</b>")]).await;
    let person = ConsoleUser::sign_in(&t).await;
    let new = format!("/brands/{}/posts/new", t.brand);
    let page = person.get(&new).await;
    page.expect(200, "<option value=\"78\">Rye <b>& more</b></option><option value=\"77\">Sourdough</option>");
    assert!(!String::from_utf8_lossy(&page.reply.body).contains("<b>&"), "the name is escaped");

    let id = save(&person, &t, &account, &new, &["78", ""]).await;
    assert_eq!(only_options(&t).await, json!({ "board": "78" }));
    let post = format!("/brands/{}/posts/{id}", t.brand);
    person.get(&post).await.expect(200, "Rye <b>& more</b>");
    person.get(&format!("{post}/edit")).await.expect(200, "<option value=\"78\" selected>");
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200)[0]["limits"], Value::Null);
}

async fn a_board_that_is_not_in_the_list_is_kept(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = pinterest(&t, &[("77", "Sourdough")]).await;
    let person = ConsoleUser::sign_in(&t).await;
    let id = save(&person, &t, &account, &format!("/brands/{}/posts/new", t.brand), &["", "9001"]).await;
    assert_eq!(only_options(&t).await, json!({ "board": "9001" }));
    let edit = format!("/brands/{}/posts/{id}/edit", t.brand);
    let page = person.get(&edit).await;
    page.expect(200, "<option value=\"\" selected>Choose a board</option>");
    page.expect(200, &format!("name=\"{BOARD}\" value=\"9001\""));
    save(&person, &t, &account, &edit, &["", "9001"]).await;
    assert_eq!(only_options(&t).await, json!({ "board": "9001" }));
    // A chosen board replaces the typed one.
    save(&person, &t, &account, &edit, &["77", "9001"]).await;
    assert_eq!(only_options(&t).await, json!({ "board": "77" }));
}

async fn without_boards_the_id_is_typed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = pinterest(&t, &[]).await;
    let person = ConsoleUser::sign_in(&t).await;
    let new = format!("/brands/{}/posts/new", t.brand);
    let page = person.get(&new).await;
    page.expect(200, "The ID of the board, a number.");
    assert!(!page.has("Choose a board"));
    save(&person, &t, &account, &new, &["77"]).await;
    assert_eq!(only_options(&t).await, json!({ "board": "77" }));
}
