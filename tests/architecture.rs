//! Checks the rules of `docs/architecture.md` that the compiler does not check, by reading the manifests and the sources.
//!
//! **To add a rule:** write a test that collects its violations with [`violations`] and reports all of them together.

use std::collections::{BTreeMap, BTreeSet};
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

/// Returns the code of a file as numbered lines, without comments and without the contents of string literals.
fn code(text: &str) -> Vec<(usize, String)> {
    let code = |line: &str| {
        let line = line.split("//").next().unwrap_or_default();
        // Every second piece between quotation marks is a string literal.
        line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
    };
    text.lines().enumerate().map(|(index, line)| (index + 1, code(line))).collect()
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
pub fn crates() -> Vec<PathBuf> {
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
    let others = [
        "api",
        "api/derive",
        "api/endpoints",
        "api/mcp",
        "api/oauth",
        "api/pages",
        "scheduler",
        "worker",
        "worker/imports",
        "worker/reports",
    ]
    .map(|folder| root().join(folder));
    common_crates().into_iter().chain(others).collect()
}

/// A row of the tables of crates in `docs/architecture.md`.
struct ListedCrate {
    /// The folder, as by [`name_of`].
    folder: String,
    /// The packages that only the crates that list them may use.
    packages: BTreeSet<String>,
}

/// Returns the rows of the tables of crates, in their order.
fn listed_crates() -> Vec<ListedCrate> {
    let document = fs::read_to_string(root().join("docs/architecture.md")).expect("the document exists");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').collect();
        let [_, name, _, packages, _] = cells[..] else { return None };
        let folder = match name.split('`').nth(1)? {
            "crier" => String::new(),
            name if root().join("common").join(name).exists() => format!("common/{name}"),
            name => name.to_owned(),
        };
        let packages = packages.split(',').filter_map(|package| package.split_whitespace().next());
        Some(ListedCrate { folder, packages: packages.filter(|name| *name != "–").map(str::to_owned).collect() })
    };
    document.lines().filter_map(row).collect()
}

#[test]
fn restricted_packages_are_used_only_where_listed() {
    let listed = listed_crates();
    let restricted: BTreeSet<&String> = listed.iter().flat_map(|listed| &listed.packages).collect();
    for folder in crates() {
        let used: BTreeSet<String> = dependencies(&folder).into_iter().map(|(package, _)| package).collect();
        let used: BTreeSet<&String> = used.iter().filter(|package| restricted.contains(package)).collect();
        let row = listed.iter().find(|listed| listed.folder == name_of(&folder)).expect("each crate is listed");
        let allowed: BTreeSet<&String> = row.packages.iter().collect();
        assert_eq!(used, allowed, "docs/architecture.md, the packages of {:?}", row.folder);
    }
}

#[test]
fn crates_of_common_import_only_crates_above_them() {
    let mut above = BTreeSet::new();
    for listed in listed_crates() {
        let Some(name) = listed.folder.strip_prefix("common/").filter(|name| *name != "*") else { continue };
        let imports = our_dependencies(&root().join(&listed.folder));
        let below = imports.into_iter().filter(|import| !above.contains(import)).collect();
        assert_no_violations(&format!("{name} imports crates below it in docs/architecture.md"), below);
        above.insert(name.to_owned());
    }
    assert_eq!(above.len(), common_crates().len(), "docs/architecture.md lists each crate of common");
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
    let used: BTreeSet<String> =
        crates().iter().flat_map(|folder| dependencies(folder)).map(|(package, _)| package).collect();
    let missing = PACKAGES.iter().filter(|package| !used.contains(**package)).map(|package| (*package).to_owned());
    assert_no_violations("no crate depends on a chosen package", missing.collect());
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

/// Cargo does not report a file that no other file declares as a module.
#[test]
fn each_test_file_is_compiled() {
    let files: BTreeMap<String, String> = sources("tests").into_iter().collect();
    let declares = |parent: &str, module: &str| {
        let line = format!("mod {module};");
        files.get(parent).is_some_and(|text| text.lines().any(|code| code.trim_start_matches("pub ") == line))
    };
    let is_compiled = |name: &str| {
        let path = name.strip_suffix("/mod.rs").or_else(|| name.strip_suffix(".rs")).unwrap_or(name);
        let (folder, module) = path.rsplit_once('/').expect("a path in `tests`");
        let parents = [format!("{folder}/mod.rs"), format!("{folder}/main.rs"), format!("{folder}.rs")];
        parents.iter().any(|parent| declares(parent, module))
    };
    let unused = files.keys().filter(|name| *name != "tests/main.rs" && !is_compiled(name));
    assert_no_violations("a test file has no `mod` line in the file above it", unused.cloned().collect());
}

#[test]
fn the_source_scanner_reads_code() {
    let lines = code("a // b\nlet c = \"d\" + e;");
    assert_eq!(lines, [(1, "a ".to_owned()), (2, "let c = \"\" + e;".to_owned())]);
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
    for dir in ["api", "common", "scheduler/src", "src", "worker/src"] {
        // SQL compares with a bind or a word in quotation marks.
        let assigns = |line: &str| line.contains(".status = ") && !line.contains("$") && !line.contains(".status = '");
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
