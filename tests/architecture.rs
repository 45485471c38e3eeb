//! Checks the rules of `docs/architecture.md` that the compiler does not check, by reading the sources.
//!
//! **To add a rule:** write a test that collects its violations with [`violations`] and reports all of them at once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum number of lines of a file. A longer file covers more than one subject.
const MAX_LINES: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all Rust files below a directory of the repository, with their paths from its root.
pub fn sources(dir: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(path) = open.pop() {
        let entries = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in entries {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source can be read");
                found.push((name_of(&path), text));
            }
        }
    }
    found.sort();
    found
}

fn name_of(path: &Path) -> String {
    path.strip_prefix(root()).expect("is in the repository").display().to_string()
}

/// The directories that contain Rust.
const DIRS: &[&str] = &["api", "bench", "common", "scheduler", "src", "tests", "worker"];

/// Returns the code of a file as numbered lines, without comments and without the contents of string literals. A `use`
/// of several lines counts as one line.
fn code(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut in_use = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default();
        // Every second piece between quotation marks is a string literal.
        let line = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        let begins = line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ");
        match found.last_mut() {
            Some((_, last)) if in_use => last.push_str(line.trim()),
            _ => found.push((index + 1, line.clone())),
        }
        in_use = (in_use || begins) && !line.contains(';');
    }
    found
}

/// Returns the lines of code that break a rule.
fn violations(dir: &str, applies: impl Fn(&str) -> bool, breaks: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in sources(dir).into_iter().filter(|(name, _)| applies(name)) {
        for (number, line) in code(&text).into_iter().filter(|(_, line)| breaks(line)) {
            found.push(format!("{name}:{number}: {}", line.trim()));
        }
    }
    found
}

fn assert_no_violations(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// Returns whether a line contains a path that begins with this word (`salvo::…`, `use salvo;`).
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + word.len()..];
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
            && (after.starts_with("::") || after.starts_with(';') || after.starts_with(" as "))
    })
}

/// Returns the manifest of the crate in a folder.
fn manifest(folder: &Path) -> toml::Table {
    let text = fs::read_to_string(folder.join("Cargo.toml")).expect("each crate has a manifest");
    text.parse().expect("a manifest is TOML")
}

/// Returns the packages that a crate depends on, except in its tests, with the options of each.
fn dependencies(folder: &Path) -> Vec<(String, toml::Value)> {
    let mut manifest = manifest(folder);
    let Some(toml::Value::Table(dependencies)) = manifest.remove("dependencies") else { return Vec::new() };
    dependencies.into_iter().collect()
}

/// Returns whether the options of a dependency enable a feature whose name begins so.
fn has_feature(options: &toml::Value, start: &str) -> bool {
    let features = options.get("features").and_then(toml::Value::as_array);
    features.is_some_and(|all| all.iter().filter_map(toml::Value::as_str).any(|feature| feature.starts_with(start)))
}

/// Returns the crates of this repository that a crate depends on, without their prefix.
fn our_dependencies(folder: &Path) -> BTreeSet<String> {
    let names = dependencies(folder).into_iter().map(|(name, _)| name);
    names.filter_map(|name| name.strip_prefix("crier-").map(str::to_owned)).collect()
}

/// Returns the folders of all crates, except the benchmarks.
fn crates() -> Vec<PathBuf> {
    [root().to_owned()].into_iter().chain(described_crates()).collect()
}

/// Returns the folders of the crates of `common`.
fn common_crates() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("common")).expect("common exists").flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// Returns the folders of the crates that have a README with their imports.
fn described_crates() -> Vec<PathBuf> {
    let others = ["api", "scheduler", "worker", "worker/reports"].map(|folder| root().join(folder));
    common_crates().into_iter().chain(others).collect()
}

/// The compiler rejects an import that the manifest does not have, and a cycle.
#[test]
fn roles_never_depend_on_each_other() {
    let roles = ["api", "worker", "scheduler"];
    let members = roles.map(|role| root().join(role)).into_iter().chain(common_crates());
    for member in members {
        let named = our_dependencies(&member);
        let found = named.iter().filter(|name| roles.contains(&name.as_str())).cloned().collect();
        assert_no_violations(&format!("{} must not depend on a role", name_of(&member)), found);
    }
}

/// The last line of a crate's README lists what it imports.
#[test]
fn readmes_of_crates_list_their_imports() {
    for folder in described_crates().into_iter().filter(|folder| !folder.ends_with("runtime")) {
        let readme = fs::read_to_string(folder.join("README.md")).expect("each crate has a README");
        let last = readme.lines().last().unwrap_or_default();
        let listed: BTreeSet<String> = last.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert_eq!(our_dependencies(&folder), listed, "{}", name_of(&folder));
    }
}

/// The feature `sqlx` of `base` and `domain` is off, except in a build with the store.
#[test]
fn only_the_store_makes_the_domain_depend_on_the_database() {
    for folder in ["common/base", "common/domain"].map(|folder| root().join(folder)) {
        let is_optional = |options: &toml::Value| options.get("optional") == Some(&toml::Value::Boolean(true));
        let found = dependencies(&folder).into_iter().filter(|(name, _)| name.starts_with("sqlx"));
        let required = found.filter(|(_, options)| !is_optional(options)).map(|(name, _)| name).collect();
        assert_no_violations(&format!("{} must not depend on the database", name_of(&folder)), required);
        let features = manifest(&folder).remove("features").expect("it has features");
        assert!(features.get("default").is_none(), "{} must have no default features", name_of(&folder));
    }
    let enables = |folder: &PathBuf| {
        dependencies(folder).iter().any(|(name, options)| name.starts_with("crier-") && has_feature(options, "sqlx"))
    };
    let found: Vec<PathBuf> = crates().into_iter().filter(enables).collect();
    assert_eq!(found, [root().join("common/store")], "only the store enables the feature `sqlx`");
}

/// Its clients block private addresses and limit responses.
#[test]
fn only_the_http_crate_has_http_clients() {
    let has_client = |folder: &PathBuf| {
        let is_client = |(name, options): &(String, toml::Value)| {
            name == "reqwest" || name.starts_with("hyper") && has_feature(options, "client")
        };
        dependencies(folder).iter().any(is_client)
    };
    let found: Vec<PathBuf> = crates().into_iter().filter(has_client).collect();
    assert_eq!(found, [root().join("common/http")], "send requests with `crier_http::HttpClient`");
}

#[test]
fn salvo_and_apalis_are_used_only_where_allowed() {
    let outside =
        |places: &'static [&'static str]| move |name: &str| !places.iter().any(|place| name.starts_with(place));
    for dir in DIRS {
        let salvo = violations(dir, outside(&["api/"]), |line| names(line, "salvo"));
        assert_no_violations("salvo lives in api only", salvo);
        let apalis = violations(dir, outside(&["scheduler/", "common/queue/"]), |line| {
            ["apalis", "apalis_core", "apalis_redis", "apalis_cron"].iter().any(|word| names(line, word))
        });
        assert_no_violations("apalis lives in scheduler and in common/queue only", apalis);
    }
}

/// The packages that Crier is built on.
#[test]
fn the_chosen_packages_are_used() {
    const PACKAGES: &[&str] = &[
        "apalis",
        "apalis-cron",
        "apalis-redis",
        "backon",
        "hmac",
        "metrics",
        "metrics-exporter-prometheus",
        "redis",
        "reqwest",
        "salvo",
        "serde",
        "sha2",
        "sqlx",
        "tokio",
    ];
    let depends = |manifest: &str, section: &str, package: &str| {
        let manifest = fs::read_to_string(root().join(manifest)).expect("a manifest");
        let (_, section) = manifest.split_once(&format!("\n[{section}]\n")).expect("the section exists");
        let mut lines = section.lines().take_while(|line| !line.starts_with('['));
        lines.any(|line| line.split(['.', ' ', '=']).next() == Some(package))
    };
    for package in PACKAGES {
        assert!(depends("Cargo.toml", "workspace.dependencies", package), "{package} is not in Cargo.toml");
        let used = |member: &&str| {
            let uses = |line: &str| names(line, &package.replace('-', "_"));
            depends(&format!("{member}/Cargo.toml"), "dependencies", package)
                && !violations(&format!("{member}/src"), |_| true, uses).is_empty()
        };
        let common = common_crates().iter().map(|folder| name_of(folder)).collect::<Vec<_>>();
        let members = [".", "api", "scheduler", "worker"].into_iter().chain(common.iter().map(String::as_str));
        assert!(members.into_iter().any(|member| used(&member)), "no member uses {package}");
    }
}

#[test]
fn pauses_are_computed_by_backon() {
    // A hand-written exponential is a shift, a power or a doubling on a line about time. A shift by a literal is a
    // size.
    const POWERS: &[&str] = &[".pow(", ".powi(", ".powf(", "* 2", "2 *", "*= 2"];
    const TIMES: &[&str] = &["from_millis", "from_secs", "timedelta", "pause", "backoff", "delay", "interval", "retry"];
    let shifts = |line: &str| line.split("<< ").skip(1).any(|by| !by.starts_with(|c: char| c.is_ascii_digit()));
    for dir in ["api/src", "common", "scheduler/src", "src", "worker/src"] {
        let backon = violations(dir, |name| name != "common/base/src/backoff.rs", |line| names(line, "backon"));
        assert_no_violations("backon lives in common/base/src/backoff.rs only", backon);
        let by_hand = violations(
            dir,
            |_| true,
            |line| {
                let line = line.to_lowercase();
                let grows = shifts(&line) || POWERS.iter().any(|power| line.contains(power));
                grows && TIMES.iter().any(|time| line.contains(time))
            },
        );
        assert_no_violations("use common/base/src/backoff.rs for growing pauses", by_hand);
    }
}

#[test]
fn a_library_is_used_in_one_module() {
    const PLACES: &[(&str, &str)] = &[
        ("crc32fast", "common/media/src/picture/png.rs"),
        ("fast_image_resize", "common/media/src/picture/resize.rs"),
        ("hex", "common/base/src/hexadecimal.rs"),
        ("httpdate", "common/http/src/retry.rs"),
        ("lettre", "common/mail/src/lib.rs"),
        ("oauth2", "common/platforms/src/oauth/protocol.rs"),
        ("quick_xml", "worker/src/feeds/tag.rs"),
    ];
    // Spans are created below the HTTP client, and sent above it.
    const TRACES: &[&str] = &["common/telemetry/src/traces/", "common/runtime/src/trace_export"];
    const DIRECTORIES: &[(&str, &[&str])] =
        &[("opentelemetry", TRACES), ("opentelemetry_proto", TRACES), ("opentelemetry_sdk", TRACES), ("prost", TRACES)];
    for (library, place) in PLACES {
        for dir in DIRS {
            let found = violations(dir, |name| name != *place, |line| names(line, library));
            assert_no_violations(&format!("{library} lives in {place} only"), found);
        }
    }
    for (library, places) in DIRECTORIES {
        // The fake collector of the tests reads spans.
        for dir in DIRS.iter().filter(|dir| **dir != "tests") {
            let outside = |name: &str| !places.iter().any(|place| name.starts_with(place));
            let found = violations(dir, outside, |line| names(line, library));
            assert_no_violations(&format!("{library} lives in {places:?} only"), found);
        }
    }
}

#[test]
fn sql_is_used_only_in_the_store() {
    let query = |line: &str| {
        let builders = ["query(", "query!(", "query_as(", "query_as!(", "query_scalar(", "query_scalar!(", "raw_sql("];
        line.contains("sqlx_macros::migrate!")
            || builders.iter().any(|builder| line.contains(&format!("sqlx::{builder}")))
    };
    for dir in ["api/src", "common", "scheduler/src", "src", "worker/src"] {
        let found = violations(
            dir,
            |name| !name.starts_with("common/store/src"),
            |line| query(line) || names(line, "sqlx::query") || line.contains("QueryBuilder"),
        );
        assert_no_violations("SQL is written in common/store/src only", found);
    }
}

#[test]
fn only_the_shared_http_client_opens_connections() {
    const OTHERS: &[&str] = &[
        "reqwest::Client",
        "reqwest::blocking",
        "reqwest::get",
        "ClientBuilder",
        "hyper::client",
        "hyper_util::client",
        "h2::client",
        "TcpStream::connect",
        "TcpSocket",
        "UdpSocket",
        "lookup_host",
        "to_socket_addrs",
    ];
    for dir in ["api/src", "common", "scheduler/src", "src", "worker/src"] {
        let found = violations(
            dir,
            // The tests of the ops server connect to it. Email is not HTTP, and the operator sets its server. Listeners
            // are bound as sockets.
            |name| {
                !name.starts_with("common/http/src/")
                    && !matches!(
                        name,
                        "common/telemetry/src/ops.rs" | "common/mail/src/lib.rs" | "common/runtime/src/listeners.rs"
                    )
            },
            |line| OTHERS.iter().any(|other| line.contains(other)),
        );
        assert_no_violations("requests are sent with crier_http::HttpClient only", found);
    }
    // The clients of a process are chosen in one place, where the process is assembled.
    let choices = violations(
        "common",
        |name| !name.starts_with("common/http/src/") && !name.ends_with("tests.rs"),
        |line| line.contains("HttpClient::trusted("),
    );
    assert!(matches!(choices.as_slice(), [one] if one.starts_with("common/runtime/src/lib.rs:")), "{choices:#?}");
    for dir in ["api/src", "scheduler/src", "worker/src"] {
        assert_no_violations(
            "a role gets its clients from common/runtime/src/lib.rs",
            violations(dir, |name| !name.ends_with("tests.rs"), |line| line.contains("HttpClient::trusted(")),
        );
    }
}

#[test]
fn files_do_not_exceed_the_line_limit() {
    let long: Vec<String> = DIRS
        .iter()
        .flat_map(|dir| sources(dir))
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    assert_no_violations(&format!("a file has at most {MAX_LINES} lines; split it by subject"), long);
}

/// Returns the documents: those in `docs` and `docs/decisions`, and the main files for readers.
fn documents() -> Vec<PathBuf> {
    let folders = ["docs", "docs/decisions"].map(|folder| fs::read_dir(root().join(folder)).expect("it exists"));
    let mut documents: Vec<PathBuf> = folders.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    documents.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    documents.extend(described_crates().into_iter().map(|folder| folder.join("README.md")));
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents
}

/// A merge can leave an old copy of a section.
#[test]
fn no_document_has_a_section_twice() {
    let mut found = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a document can be read");
        let mut seen = BTreeSet::new();
        let twice = text.lines().filter(|line| line.starts_with("## ") && !seen.insert(line.to_owned()));
        found.extend(twice.map(|line| format!("{}: {line}", name_of(&document))));
    }
    assert_no_violations("a section stands twice", found);
}

/// Only links to files of the repository are checked.
#[test]
fn links_in_documents_point_to_files() {
    let mut found = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a document can be read");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        // A link that begins with `/` is a path of the API.
        let files = links.filter(|link| !link.is_empty() && !link.contains(':') && !link.starts_with('/'));
        let missing = files.filter(|link| !document.parent().is_some_and(|folder| folder.join(link).exists()));
        found.extend(missing.map(|link| format!("{}: {link}", name_of(&document))));
    }
    assert_no_violations("a link leads to no file", found);
}

#[test]
fn both_engines_have_the_same_migrations() {
    let names = |engine: &str| -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(root().join("migrations").join(engine)).into_iter().flatten().flatten();
        entries.map(|entry| PathBuf::from(entry.file_name())).collect()
    };
    assert_eq!(names("postgres"), names("sqlite"), "each migration must exist for both engines");
}

/// The compiler reports a missing file, but not an unused one.
#[test]
fn each_statement_of_the_queue_is_used() {
    let folder = root().join("common/store/src/jobs/sql");
    let users: String = sources("common/store/src").iter().map(|(_, source)| source.as_str()).collect();
    let mut found = Vec::new();
    for engine in ["postgres", "sqlite"] {
        for entry in fs::read_dir(folder.join(engine)).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            let is_used = ["tx", "conn"].iter().any(|of| users.contains(&format!("sql_file!({of}, \"{name}\")")))
                || users.contains(&format!("sql/{engine}/{name}.sql\""));
            found.extend((!is_used).then(|| name_of(&path)));
        }
    }
    assert_no_violations("a statement of the queue is not used", found);
}

#[test]
fn the_source_scanner_finds_imports() {
    assert!(names("use salvo::prelude::*;", "salvo") && names("    salvo::Router::new()", "salvo"));
    assert!(!names("use crier_salvo::x;", "salvo") && !names("let salvo = 1", "salvo"));
    let lines = code("a // salvo::x\nlet b = \"salvo::y\" + c;\nuse crate::{\n    x,\n};\nd");
    let lines: Vec<(usize, &str)> = lines.iter().map(|(number, line)| (*number, line.as_str())).collect();
    assert_eq!(lines, [(1, "a "), (2, "let b = \"\" + c;"), (3, "use crate::{x,};"), (6, "d")]);
    assert!(sources("tests").iter().any(|(name, _)| name == "tests/architecture.rs"));
}

/// Returns the literals of a `Post` (`Post { … }`, also those with `..post`) in a source.
fn post_literals(source: &str) -> Vec<&str> {
    let starts = source.match_indices("Post {").filter(|(at, _)| {
        let before = source[..*at].trim_end();
        !source[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
            && !["struct", "impl", "for", "->"].iter().any(|word| before.ends_with(word))
    });
    let literal = |(at, _): (usize, &str)| {
        let mut depth = 0;
        let end = source[at..].find(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == '}' && depth == 0
        });
        &source[at..end.map_or(source.len(), |end| at + end)]
    };
    starts.map(literal).collect()
}

fn sets_status(literal: &str) -> bool {
    literal.split(['{', ',', '}']).any(|field| field.split(':').next().is_some_and(|name| name.trim() == "status"))
}

/// `Post::move_to` checks the transition, and a new post is a `Post::draft`.
#[test]
fn the_status_of_a_post_changes_only_by_a_transition() {
    let applies = |name: &str| name != "common/domain/src/post.rs" && !name.ends_with("tests.rs");
    for dir in ["api/src", "common", "scheduler/src", "src", "worker/src"] {
        let assigns = |line: &str| line.contains(".status = ") && !line.contains("$");
        assert_no_violations("change a status with its type's transition", violations(dir, applies, assigns));
        for (name, text) in sources(dir).into_iter().filter(|(name, _)| applies(name)) {
            let lines: Vec<String> = code(&text).into_iter().map(|(_, line)| line).collect();
            let source = lines.join("\n");
            let found = post_literals(&source).into_iter().filter(|literal| sets_status(literal));
            assert_no_violations(&format!("{name}: use Post::move_to"), found.map(str::to_owned).collect());
        }
    }
    let example = "impl Post { status } NewPost { status } Post { id, status, ..post } Post { f: { status: 1 } } Post { a: b.status }";
    assert_eq!(post_literals(example).iter().filter(|literal| sets_status(literal)).count(), 2);
}

/// On SQLite, a transaction blocks all other writers, so a body is read before the transaction begins.
#[test]
fn bodies_are_not_read_in_a_transaction() {
    let routes = sources("api/src/routes").into_iter();
    let writers = routes.filter(|(_, text)| code(text).iter().any(|(_, line)| line.contains(".writes(")));
    let reads = |line: &str| line.contains("cx.read(") || line.contains("Fields::new(") || line.contains("cx.body");
    let found = writers.flat_map(|(name, text)| {
        let lines = code(&text).into_iter().filter(|(_, line)| reads(line));
        lines.map(|(number, line)| format!("{name}:{number}: {}", line.trim())).collect::<Vec<_>>()
    });
    assert_no_violations("Use `checks_then_writes` where there is a body", found.collect());
}

/// The results of a connector pass through `sanitized.rs`. A trait method with a default body would silently bypass it.
#[test]
fn every_connector_method_is_checked() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a source can be read");
    let (platforms, sanitized) = (read("common/platforms/src/lib.rs"), read("common/platforms/src/sanitized.rs"));
    let (_, rest) = platforms.split_once("pub trait Connector").expect("the trait exists");
    let (methods, _) = rest.split_once("\n}\n").expect("it ends");
    let names: Vec<&str> =
        methods.split(" fn ").skip(1).filter_map(|method| method.split_once('(')).map(|(name, _)| name).collect();
    assert!(names.contains(&"publish") && names.contains(&"claims_handle"), "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !sanitized.contains(&format!(" fn {name}("))).collect();
    assert!(missing.is_empty(), "sanitized.rs lacks {missing:?}");
}
