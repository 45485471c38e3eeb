//! The ready-made configuration of MCP clients, with an API key or with OAuth.

use std::net::IpAddr;

use url::{Host, Url};

/// The configuration of a client.
pub struct Client {
    /// The ID of the block in the page.
    pub id: &'static str,
    pub name: &'static str,
    /// Where the text belongs.
    pub place: &'static str,
    pub text: String,
}

/// Returns the URL for clients that send an API key.
fn key_url(public_url: &str) -> String {
    format!("{public_url}/mcp")
}

/// Returns the URL for clients that use OAuth.
pub fn oauth_url(public_url: &str) -> String {
    format!("{public_url}/mcp/oauth")
}

/// Returns the clients that send a key.
pub fn with_key(public_url: &str, key: &str) -> Vec<Client> {
    let url = key_url(public_url);
    let client = |id, name, place, text| Client { id, name, place, text };
    vec![
        client(
            "claude-code",
            "Claude Code",
            "Run this command in a terminal:",
            format!("claude mcp add --transport http crier {url} --header \"Authorization: Bearer {key}\""),
        ),
        client(
            "cursor",
            "Cursor",
            "Add this to ~/.cursor/mcp.json, not to a file in a repository:",
            format!(
                "{{\n  \"mcpServers\": {{\n    \"crier\": {{\n      \"url\": \"{url}\",\n      \"headers\": {{ \
                 \"Authorization\": \"Bearer {key}\" }}\n    }}\n  }}\n}}"
            ),
        ),
        client(
            "vs-code",
            "VS Code",
            "Add this to .vscode/mcp.json, and do not commit that file. Or run \u{201c}MCP: Open User Configuration\u{201d}:",
            format!(
                "{{\n  \"servers\": {{\n    \"crier\": {{\n      \"type\": \"http\",\n      \"url\": \"{url}\",\n      \
                 \"headers\": {{ \"Authorization\": \"Bearer {key}\" }}\n    }}\n  }}\n}}"
            ),
        ),
        client(
            "n8n",
            "n8n",
            "Add the node MCP Client with these values:",
            format!(
                "Endpoint: {url}\nServer transport: HTTP Streamable\nAuthentication: Bearer Auth\nBearer token: {key}"
            ),
        ),
    ]
}

/// Returns the clients that need no key, because they use OAuth.
pub fn with_oauth(public_url: &str) -> Vec<Client> {
    let client = |id, name, place| Client { id, name, place, text: oauth_url(public_url) };
    vec![
        client(
            "claude",
            "Claude on the web, on the desktop and on phones",
            "Add a custom connector under Settings, Connectors, with this URL. Anthropic's servers call it, even if you use \
             the desktop app:",
        ),
        client(
            "chatgpt",
            "ChatGPT",
            "Create a connector with this URL and the authentication OAuth. ChatGPT cannot send an API key:",
        ),
    ]
}

/// Returns why clients in the cloud cannot use a public URL. `None` if there is no known reason.
pub fn unreachable(public_url: &str) -> Option<&'static str> {
    let url = Url::parse(public_url).ok()?;
    let is_private = match url.host() {
        Some(Host::Domain(name)) => is_local(name),
        Some(Host::Ipv4(address)) => is_private(address.into()),
        Some(Host::Ipv6(address)) => is_private(address.into()),
        None => true,
    };
    if is_private {
        return Some(
            "Only programs on this computer or in this network can reach Crier. Clients in the cloud, such as Claude on \
             the web and on the desktop, ChatGPT, and n8n Cloud, need a public https URL, which the operator sets with \
             CRIER_PUBLIC_URL.",
        );
    }
    (url.scheme() != "https").then_some(
        "The public URL of Crier begins with http://. Clients in the cloud, such as Claude on the web and on the \
         desktop, and ChatGPT, accept only https. Without https, others on the network can also read your keys. The \
         operator sets the URL with CRIER_PUBLIC_URL.",
    )
}

/// Returns whether a name has an address only on this computer or in its network.
fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let suffixes = [".localhost", ".local", ".internal", ".localdomain", ".home.arpa"];
    !name.contains('.') || suffixes.iter().any(|suffix| name.ends_with(suffix))
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_valid_json_with_the_key() {
        for client in with_key("https://crier.example", "svc_live_x") {
            assert!(client.text.contains("https://crier.example/mcp"), "{}", client.name);
            assert!(client.text.contains("svc_live_x") && !client.text.contains("/oauth"), "{}", client.name);
            if client.text.starts_with('{') {
                serde_json::from_str::<serde_json::Value>(&client.text).expect(client.name);
            }
        }
        for client in with_oauth("https://crier.example") {
            assert_eq!(client.text, "https://crier.example/mcp/oauth");
        }
    }

    #[test]
    fn urls_that_the_cloud_cannot_reach_are_reported() {
        for url in [
            "http://127.0.0.1:8080",
            "https://localhost",
            "https://crier",
            "https://crier.local",
            "https://crier.home.arpa.",
            "https://10.1.2.3",
            "http://[::1]:8080",
            "https://[fd00::1]",
        ] {
            assert!(unreachable(url).is_some_and(|text| text.contains("Only programs")), "{url}");
        }
        assert!(unreachable("http://crier.example").is_some_and(|text| text.contains("only https")));
        assert_eq!(unreachable("https://crier.example"), None);
        assert_eq!(unreachable("https://local.example"), None);
    }
}
