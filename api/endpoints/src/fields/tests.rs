use super::*;

#[test]
fn merged_problems_get_renamed_paths() {
    let (own, theirs) = (Problems::default(), Problems::default());
    own.add("ids.0", "Own.");
    for path in ["accounts.1", "content"] {
        theirs.add(path, "Theirs.");
    }
    own.merge(theirs, |path| path.replace("accounts", "ids"));
    assert_eq!(own.paths(), ["content", "ids.0"]);
}

#[test]
fn nested_problems_are_found_among_similar_paths() {
    let problems = Problems::default();
    for path in ["a-b", "a.1", "aa", "b!"] {
        problems.add(path, "Wrong.");
    }
    for (path, is_wrong) in [("a", true), ("a.1", true), ("a.2", false), ("b", false), ("a-b", true), ("", false)] {
        assert_eq!(problems.has(path), is_wrong, "{path}");
    }
}
