//! `crier account …` and `crier app …`: connecting accounts, and the applications in whose name they are connected.

use clap::{Args, Subcommand};
use crier_domain::platform::{ConnectTarget, Platform};

use super::Format;

#[derive(Subcommand, Debug)]
pub enum AccountCommand {
    /// List the connected accounts.
    List(Format),
    /// Print a single-use URL for connecting an account; it expires after 30 minutes.
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
    /// The platform, such as mastodon; `crier doctor` lists the platforms that can be connected.
    pub platform: Platform,
    /// The ID of the brand to connect the account to, from `crier brand list`.
    #[arg(long)]
    pub brand: i64,
    /// The URL of the server or shop, for platforms that have many.
    #[arg(long, value_name = "URL", visible_alias = "shop")]
    pub instance: Option<String>,
    /// The target: default, or page for a page that the person chooses.
    #[arg(long, default_value = "default")]
    pub target: ConnectTarget,
}

#[derive(Subcommand, Debug)]
pub enum AppCommand {
    /// Set an application that you registered with a platform; its secret is read from stdin.
    #[command(
        after_help = concat!(
            "Crier uses the most specific application: the brand's, else the workspace's, else the installation's, \
             else the one from the variables (CRIER_TUMBLR_CLIENT_ID, …). If you set a new secret for the same \
             client ID, accounts that were connected with it use the new secret.\n\n",
            "Examples:\n",
            "  crier app set --platform tumblr --client-id abc <secret.txt\n",
            "  pass show tumblr | crier app set --platform tumblr --workspace 2 --client-id abc",
        )
    )]
    Set(SetApp),
    /// List applications, without their secrets.
    List(Format),
    /// Delete an application; accounts that were connected with it keep working.
    Delete {
        /// The application ID, from `crier app list`.
        id: i64,
    },
}

#[derive(Args, Debug)]
pub struct SetApp {
    /// The platform where the application is registered.
    #[arg(long)]
    pub platform: Platform,
    /// The target: default, or page for the second application of a platform that requires two.
    #[arg(long, default_value = "default")]
    pub target: ConnectTarget,
    /// The ID of the workspace whose brands use the application, from `crier user list`.
    #[arg(long, conflicts_with = "brand")]
    pub workspace: Option<i64>,
    /// The ID of the brand that uses the application, from `crier brand list`.
    #[arg(long)]
    pub brand: Option<i64>,
    /// The client ID from the platform; the secret is read from stdin.
    #[arg(long)]
    pub client_id: String,
}
