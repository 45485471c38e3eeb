//! The post of an article of a feed that publishes.

use crier_base::patch_field::PatchField;
use crier_domain::account::AccountSummary;
use crier_domain::auto_post::{ArticleText, AutoPost, FeedDestination, Template, Variable};
use crier_domain::catalogue::descriptor;
use crier_domain::post::ScheduleType;
use crier_platforms::text::cut;
use crier_platforms::text::split::{SplitAccount, TextLimits};

use crate::PostChange;
use crate::change::MAX_CONTENT_CHARS;

/// Returns the text of the post of an article, which fits on all accounts if possible. If the text is too long, the
/// summary is cut between two words, then the author is omitted, and then the title is cut. The URL and the text of the
/// template always stay.
pub fn text(template: &Template, article: &ArticleText, accounts: &[AccountSummary]) -> String {
    let rules: Vec<_> = accounts.iter().map(|a| descriptor(a.platform).with_limits(a.limits.as_ref())).collect();
    let accounts: Vec<_> = accounts
        .iter()
        .zip(&rules)
        .map(|(account, rules)| SplitAccount { descriptor: rules, signature: account.signature.as_deref() })
        .collect();
    let limits = TextLimits::of(&accounts);
    fit(template, article, |text| text.chars().count() <= MAX_CONTENT_CHARS && limits.fits(text))
}

fn fit(template: &Template, article: &ArticleText, fits: impl Fn(&str) -> bool) -> String {
    let whole = template.render(article);
    if fits(&whole) {
        return whole;
    }
    let summary = longest(template, article, Variable::Summary, &fits);
    if let Some(text) = summary {
        return text;
    }
    let article = article.with(Variable::Summary, "").with(Variable::Author, "");
    let without = template.render(&article);
    if fits(&without) {
        return without;
    }
    let title = longest(template, &article, Variable::Title, &fits);
    title.unwrap_or_else(|| template.render(&article.with(Variable::Title, "")))
}

/// Returns the text with the longest beginning of a variable that fits. `None` if it does not fit without the variable.
fn longest(
    template: &Template,
    article: &ArticleText,
    variable: Variable,
    fits: &impl Fn(&str) -> bool,
) -> Option<String> {
    let whole = article.get(variable);
    let text = |max: usize| {
        // Nothing but an ellipsis says nothing.
        let beginning = cut::at_word(whole, max);
        template.render(&article.with(variable, if beginning == "…" { "" } else { beginning.as_ref() }))
    };
    let mut best = Some(text(0)).filter(|text| fits(text))?;
    // A longer beginning counts more, except if it ends within a link. Each text that is returned was measured.
    let (mut low, mut high) = (0, whole.chars().count());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let candidate = text(middle);
        if fits(&candidate) {
            (low, best) = (middle, candidate);
        } else {
            high = middle;
        }
    }
    Some(best)
}

/// Returns the change of an empty draft to the post of an article.
pub fn change(settings: &AutoPost, text: String) -> PostChange {
    let schedule_type = match settings.destination {
        FeedDestination::Now => PatchField::Value(ScheduleType::Now),
        FeedDestination::Queue => PatchField::Value(ScheduleType::Queue),
        FeedDestination::Draft | FeedDestination::Approval => PatchField::Omitted,
    };
    PostChange {
        content: PatchField::Value(text),
        schedule_type,
        accounts: PatchField::Value(settings.accounts.clone()),
        ..PostChange::default()
    }
}

#[cfg(test)]
mod tests {
    use crier_domain::account::AccountStatus;
    use crier_domain::platform::Platform;
    use proptest::prelude::*;

    use super::*;

    fn account(platform: Platform, signature: Option<&str>) -> AccountSummary {
        AccountSummary {
            id: 1,
            platform,
            name: "Bakery".to_owned(),
            status: AccountStatus::Active,
            limits: None,
            granted_scopes: None,
            signature: signature.map(str::to_owned),
        }
    }

    fn article(title: &str, summary: &str) -> ArticleText {
        ArticleText {
            title: title.to_owned(),
            url: "https://bakery.example/blog/a-long-path-of-an-article-about-rye".to_owned(),
            summary: summary.to_owned(),
            author: "Ann Baker".to_owned(),
        }
    }

    fn template() -> Template {
        Template::parse("New: {title}\n\n{summary}\n\nBy {author}\n{url}").unwrap()
    }

    #[test]
    fn a_long_text_is_cut_at_a_word_and_keeps_its_url() {
        let short = article("Rye", "It keeps for a week.");
        let on = |platform, article: &ArticleText| text(&template(), article, &[account(platform, None)]);
        assert_eq!(on(Platform::Bluesky, &short), template().render(&short));
        let long = article("Rye", &"bread and butter ".repeat(40));
        let cut = on(Platform::Bluesky, &long);
        assert!(cut.chars().count() <= 300 && cut.contains('…'), "{cut}");
        assert!(cut.starts_with("New: Rye\n\nbread") && cut.ends_with(&long.url), "{cut}");
        let long_title = article(&"rye ".repeat(200), "Summary");
        let cut = on(Platform::Bluesky, &long_title);
        assert!(cut.starts_with("New: rye") && cut.ends_with(&long.url) && !cut.contains("Summary"), "{cut}");
        assert!(!cut.contains("Ann"), "the author is omitted before the title is cut");
    }

    #[test]
    fn the_strictest_account_and_its_signature_decide() {
        let long = article("Rye", &"bread and butter ".repeat(200));
        let count = |accounts: &[AccountSummary]| text(&template(), &long, accounts).chars().count();
        let (telegram, bluesky) = (account(Platform::Telegram, None), account(Platform::Bluesky, None));
        assert!(count(std::slice::from_ref(&telegram)) > 3_000);
        assert!((250..=300).contains(&count(&[telegram.clone(), bluesky.clone()])));
        let signature = "s".repeat(100);
        let signed = account(Platform::Bluesky, Some(&signature));
        assert!((150..=198).contains(&count(&[telegram, signed])), "two line breaks separate the signature");
        assert_eq!(count(&[]), template().render(&long).chars().count(), "a draft may have no accounts");
    }

    proptest! {
        #[test]
        fn a_text_fits_and_keeps_its_url(
            title in "\\PC{0,80}",
            summary in "(\\PC|[a-z ,.\n]){0,400}",
            max in 70_usize..400,
        ) {
            let article = article(&title, &summary);
            let fits = |text: &str| text.chars().count() <= max;
            let template = Template::parse("{title}\n\n{summary}\n\n{author} {url}").unwrap();
            let text = fit(&template, &article, fits);
            prop_assert!(fits(&text), "{} of {max}: {text}", text.chars().count());
            prop_assert!(text.ends_with(&article.url));
            prop_assert_eq!(text == template.render(&article), fits(&template.render(&article)));
        }
    }
}
