//! Checks that the modules of a crate import each other in one direction: no circle has more than two files.
//!
//! A file imports another one if it names it by a path that begins with `crate` or `super`. A module that composes the
//! modules below it does not count as importing them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::architecture::{crates, sources};

/// A module, as the parts of its path.
type Module = Vec<String>;

/// Returns the modules of a crate with their code, without unit tests.
fn modules(folder: &Path) -> BTreeMap<Module, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src = folder.join("src").strip_prefix(root).expect("is in the repository").display().to_string();
    let module = |(name, text): (String, String)| {
        let path = name.strip_prefix(&format!("{src}/"))?.strip_suffix(".rs")?;
        let mut parts: Module = path.split('/').map(str::to_owned).collect();
        if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
            parts.pop();
        }
        let is_test = parts.iter().any(|part| part == "tests");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (!is_test).then_some((parts, code))
    };
    sources(&src).into_iter().filter_map(module).collect()
}

/// Returns the paths in a file that begin with `crate` or `super`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = lines.join(" ");
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':' && c != '$') {
                expand(&code[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Adds the paths at the beginning of `text`: one path, or a group in braces. Returns the rest.
fn expand<'t>(mut text: &'t str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    let depth = prefix.len();
    loop {
        text = text.trim_start();
        if let Some(mut group) = text.strip_prefix('{') {
            loop {
                group = expand(group, prefix, found).trim_start();
                let Some(rest) = group.strip_prefix(',') else { break };
                group = rest;
                if group.trim_start().starts_with('}') {
                    break;
                }
            }
            prefix.truncate(depth);
            return group.trim_start().strip_prefix('}').unwrap_or(group);
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        prefix.push(text[..end].to_owned());
        text = &text[end..];
        match text.strip_prefix("::") {
            Some(rest) => text = rest,
            None => break,
        }
    }
    found.push(prefix.clone());
    prefix.truncate(depth);
    let end = text.find([',', '}', ';']).unwrap_or(text.len());
    if text.starts_with(" as ") { &text[end..] } else { text }
}

/// Returns the modules that a module imports.
fn imports(module: &Module, code: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let resolve = |path: Vec<String>| {
        let mut parts = path.into_iter().peekable();
        let mut target = Module::new();
        if parts.next_if(|part| part == "crate").is_none() {
            target.clone_from(module);
            while parts.next_if(|part| part == "super").is_some() {
                target.pop();
            }
        }
        target.extend(parts);
        while !all.contains_key(&target) {
            target.pop()?;
        }
        Some(target)
    };
    let found = paths(code).into_iter().filter_map(resolve);
    found.filter(|target| target != module && !target.starts_with(module)).collect()
}

/// Returns the groups of modules of which each imports, directly or not, all others of the group.
fn circles(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reach = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            for next in graph.get(module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = graph.keys().map(|module| (module, reach(module))).collect();
    let group = |(module, seen): (&&Module, &BTreeSet<Module>)| {
        let mutual = seen.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)));
        mutual.cloned().collect::<BTreeSet<_>>()
    };
    let mut groups: Vec<BTreeSet<Module>> = reached.iter().map(group).filter(|group| group.len() > 1).collect();
    groups.sort();
    groups.dedup();
    groups
}

#[test]
fn no_circle_of_modules_has_more_than_two_files() {
    let mut found = Vec::new();
    let mut imported = 0;
    for folder in crates() {
        let all = modules(&folder);
        let graph: BTreeMap<Module, BTreeSet<Module>> =
            all.iter().map(|(module, code)| (module.clone(), imports(module, code, &all))).collect();
        imported += graph.values().map(BTreeSet::len).sum::<usize>();
        let large = circles(&graph).into_iter().filter(|circle| circle.len() > 2);
        found.extend(large.map(|circle| {
            let names: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            format!("{}: {}", folder.display(), names.join(", "))
        }));
    }
    assert!(found.is_empty(), "modules import each other in a circle:\n{}", found.join("\n"));
    assert!(imported > 1_000, "{imported} imports were found");
}

#[test]
fn circles_are_found_in_all_ways_of_importing() {
    let code = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nfn f() { a::f() }"),
        ("a.rs", "use crate::b::{self, Thing as Other};"),
        ("b.rs", "fn f() { super::c::d::f() } // crate::a"),
        ("c/mod.rs", "mod d;\npub use d::f;"),
        ("c/d.rs", "use crate::{\n    a::{f, g},\n    b,\n};\nuse super::Thing;\nuse std::super_thing;"),
    ];
    let all: BTreeMap<Module, String> = code
        .iter()
        .map(|(name, code)| {
            let path = name.strip_suffix(".rs").expect("is Rust");
            let path = path.strip_suffix("/mod").unwrap_or(path);
            let module = if path == "lib" { Module::new() } else { path.split('/').map(str::to_owned).collect() };
            (module, (*code).to_owned())
        })
        .collect();
    let graph = all.iter().map(|(module, code)| (module.clone(), imports(module, code, &all))).collect();
    let names: Vec<Vec<String>> =
        circles(&graph).iter().map(|circle| circle.iter().map(|module| module.join("/")).collect()).collect();
    assert_eq!(names, [["a", "b", "c/d"]]);
}
