//! The labels of posts, in the composer, on the page of a post and in lists.

use crier_endpoints::error::Result;
use crier_endpoints::routes::posts::labels;
use url::form_urlencoded::Serializer;

use super::shared::Link;
use super::visit::Visit;

/// The maximum number of labels to choose from.
const MAX_CHOICES: usize = 100;

/// Returns the labels of the brand's posts that are suggested, in alphabetical order.
pub async fn suggested_labels(visit: &Visit) -> Result<Vec<String>> {
    let all = visit.call().read(labels::endpoint(), ()).await?;
    Ok(all.into_iter().map(|one| one.label).take(MAX_CHOICES).collect())
}

/// Returns for each label a link to the list of the posts with it.
pub fn label_links(brand_id: i64, labels: &[String]) -> Vec<Link> {
    let link = |label: &String| {
        let query = Serializer::new(String::new()).append_pair("label", label).finish();
        Link::new(label, &format!("/brands/{brand_id}/posts?{query}"))
    };
    labels.iter().map(link).collect()
}
