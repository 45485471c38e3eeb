//! `crier account …` and `crier app …`: connecting accounts, and the applications in whose name they are connected.

use clap::{Args, Subcommand};
use crier_domain::platform::{ConnectTarget, Platform};

use super::Format;

#[derive(Subcommand, Debug)]
pub enum AccountCommand {
    /// List the connected accounts.
    List(Format),
    /// Print a URL at which a person connects an account; it works once, for 30 minutes.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier account connect mastodon --brand 1 --instance https://mastodon.social\n",
            "  crier account connect shopify --brand 1 --shop example.myshopify.com\n",
            "  crier account connect tumblr --brand 1",
        )
    )]
    Connect(ConnectAccount),
}

#[derive(Args, Debug)]
pub struct ConnectAccount {
    /// mastodon, facebook, …: `crier doctor` shows which can be connected here.
    pub platform: Platform,
    /// The id of the brand that gets the account.
    #[arg(long)]
    pub brand: i64,
    /// The person's server or shop, where the platform has many.
    #[arg(long, value_name = "URL", visible_alias = "shop")]
    pub instance: Option<String>,
    /// default, or page for a page that the person chooses.
    #[arg(long, default_value = "default")]
    pub target: ConnectTarget,
}

#[derive(Subcommand, Debug)]
pub enum AppCommand {
    /// Set an application that you registered at a platform; its secret is read from stdin.
    #[command(
        after_help = concat!(
            "The nearest to a brand is used: the brand's own, else its workspace's, else the installation's, else \
             that of the variables (CRIER_TUMBLR_CLIENT_ID, …). With the same client id and a new secret, the \
             accounts that were connected with it take the new secret.\n\n",
            "Examples:\n",
            "  crier app set --platform tumblr --client-id abc <secret.txt\n",
            "  pass show tumblr | crier app set --platform tumblr --workspace 2 --client-id abc",
        )
    )]
    Set(SetApp),
    /// List applications (never their secrets).
    List(Format),
    /// Delete an application. Accounts that were connected with it keep working.
    Delete {
        /// The id, as `crier app list` shows it.
        id: i64,
    },
}

#[derive(Args, Debug)]
pub struct SetApp {
    /// Where it is registered.
    #[arg(long)]
    pub platform: Platform,
    /// default, or page for the second application of a platform that wants two.
    #[arg(long, default_value = "default")]
    pub target: ConnectTarget,
    /// For all brands of this workspace.
    #[arg(long, conflicts_with = "brand")]
    pub workspace: Option<i64>,
    /// For this brand.
    #[arg(long)]
    pub brand: Option<i64>,
    /// As the platform shows it; the secret is read from stdin.
    #[arg(long)]
    pub client_id: String,
}
