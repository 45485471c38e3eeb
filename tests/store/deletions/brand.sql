-- Rows of a brand, in every table in which a brand has rows. The test replaces the names in braces.
INSERT INTO invitations (brand_id, user_id, role, expires_at, email, hash)
VALUES ({brand}, {user}, 'editor', {at}, 'c@example.com', 'i{brand}');
INSERT INTO account_avatars (account_id, url, next_read_at) VALUES ({account}, 'https://x.test', {at});
INSERT INTO inbox_syncs (account_id, created_at, cursors) VALUES ({account}, {at}, '{}');
INSERT INTO account_metrics (account_id, at) VALUES ({account}, {at});
INSERT INTO metrics_set_aside (account_id, name, until) VALUES ({account}, 'reach', {at});
INSERT INTO publish_calls (account_id, began_at) VALUES ({account}, {at});
INSERT INTO snippets (brand_id, name, kind, created_at, updated_at, content)
VALUES ({brand}, 'n', 'text', {at}, {at}, 'c');
INSERT INTO applications (platform, target, brand_id, instance, redirect_uri, client_id, client_secret)
VALUES ('mastodon', 'default', {brand}, 'x.test', 'r', 'c', 's');
INSERT INTO authorizations (token_hash, brand_id, platform, target, instance, stage, expires_at)
VALUES ('t{brand}', {brand}, 'mastodon', 'default', 'x.test', 'issued', {at});
INSERT INTO media (brand_id, file_id, asset_type, filename, search, created_at, updated_at)
VALUES ({brand}, {file}, 'image', '{long}', '{long}', {at}, {at});
INSERT INTO media_uploads (
    workspace_id, brand_id, state, size_bytes, reserved, received, pieces, created_at, expires_at, asset_type,
    filename, metadata
)
VALUES ({workspace}, {brand}, 'open', 9, 0, 0, 1, {at}, '2036-01-01T00:00:00+00:00', 'video', '', '');
INSERT INTO media_upload_pieces (upload_id, key, number) SELECT max(id), 'piece', 0 FROM media_uploads;
INSERT INTO media_jobs (brand_id, asset_type, source_url, status, media_id, created_at, updated_at)
SELECT {brand}, 'image', '{long}', 'completed', max(id), {at}, {at} FROM media;
UPDATE posts SET content = '{long}', labels = '["x"]' WHERE id = {post};
INSERT INTO post_media (post_id, media_id) SELECT {post}, max(id) FROM media;
INSERT INTO target_attempts (target_id, number, started_at, duration_ms, outcome, created_at, updated_at)
VALUES ({target}, 1, {at}, 1, 'failed', {at}, {at});
INSERT INTO first_comments (target_id, created_at, content, status, updated_at)
VALUES ({target}, {at}, 'c', 'pending', {at});
INSERT INTO target_analytics (target_id, post_id, brand_id, account_id, published_at)
VALUES ({target}, {post}, {brand}, {account}, {at});
INSERT INTO target_metrics (target_id, at) VALUES ({target}, {at});
INSERT INTO queues (brand_id, slots) VALUES ({brand}, '[]');
INSERT INTO queue_places (brand_id, account_id, at, post_id) VALUES ({brand}, {account}, {at}, {post});
INSERT INTO post_imports (brand_id, user_id, status, dry_run, timezone, date_format, accounts, created_at, updated_at)
VALUES ({brand}, {user}, 'pending', FALSE, 'UTC', 'iso', '[]', {at}, {at});
INSERT INTO post_import_files (import_id, bytes) SELECT max(id), 'b' FROM post_imports;
INSERT INTO post_import_errors (import_id, number, row_number, column_name, message)
SELECT max(id), 1, 1, 'c', 'm' FROM post_imports;
INSERT INTO post_import_media (import_id, url) SELECT max(id), 'https://x.test' FROM post_imports;
INSERT INTO content_plans (brand_id, name, created_at, updated_at) VALUES ({brand}, 'n', {at}, {at});
INSERT INTO content_plan_items (plan_id, title, post_id, created_at, updated_at)
SELECT max(id), 't', {post}, {at}, {at} FROM content_plans;
INSERT INTO recurring_posts (
    brand_id, author_id, name, frequency, weekdays, starts_on, destination, is_active, accounts, labels, created_at,
    updated_at, variations, overrides
)
VALUES ({brand}, {user}, 'n', 'daily', '[]', '2026-01-01', 'draft', TRUE, '[]', '[]', {at}, {at}, '[]', '[]');
INSERT INTO recurring_occurrences (recurring_id, slot, occurs_at, number, version, post_id)
SELECT max(id), 's', {at}, 0, 1, {post} FROM recurring_posts;
INSERT INTO feeds (brand_id, name, named, url, type, status, next_fetch_at, created_at, updated_at)
VALUES ({brand}, 'n', FALSE, 'https://x.test', 'rss', 'active', {at}, {at}, {at});
INSERT INTO articles (feed_id, guid, published_at, digest, created_at, updated_at)
SELECT max(id), 'g', {at}, 'd', {at}, {at} FROM feeds;
INSERT INTO feed_posts (feed_id, status, post_id, created_at, guid)
SELECT max(id), 'posted', {post}, {at}, 'g' FROM feeds;
INSERT INTO conversations (
    brand_id, account_id, platform, type, status, unread_count, assignee_id, last_message_at, created_at,
    updated_at, thread_id, last_message_preview, reply_context
)
VALUES ({brand}, {account}, 'sandbox', 'dm', 'open', 0, {user}, {at}, {at}, {at}, 't', 'p', '{}');
INSERT INTO conversation_tags (brand_id, tag, conversation_id) SELECT {brand}, 't', max(id) FROM conversations;
INSERT INTO conversation_words (brand_id, word, conversation_id) SELECT {brand}, 'w', max(id) FROM conversations;
INSERT INTO messages (
    conversation_id, brand_id, account_id, direction, status, sent_at, author_user_id, attempts, created_at,
    updated_at, body
)
SELECT max(id), {brand}, {account}, 'outbound', 'pending', {at}, {user}, 0, {at}, {at}, '{long}' FROM conversations;
INSERT INTO reports (brand_id, name, created_at, updated_at, widgets) VALUES ({brand}, 'n', {at}, {at}, '[]');
INSERT INTO report_schedules (report_id, frequency, format, has_bom, recipients, next_run_at, created_at, updated_at)
SELECT max(id), 'daily', 'pdf', FALSE, '[]', {at}, {at}, {at} FROM reports;
INSERT INTO report_deliveries (
    report_id, brand_id, status, format, has_bom, starts_on, ends_on, file_id, created_at, updated_at
)
SELECT max(id), {brand}, 'sent', 'pdf', FALSE, '2026-01-01', '2026-01-02', {file}, {at}, {at} FROM reports;
INSERT INTO mails (user_id, recipient, subject, body_text, message_id, status, created_at, delivery_id, has_file)
SELECT {user}, 'r', 's', 'b', 'm{brand}', 'sent', {at}, max(id), TRUE FROM report_deliveries;
INSERT INTO report_recipients (delivery_id, position, recipient, status, mail_id)
SELECT max(d.id), 0, 'r', 'sent', max(m.id) FROM report_deliveries d CROSS JOIN mails m;
INSERT INTO bio_pages (brand_id, slug, title, theme, avatar_id, created_at, updated_at)
SELECT {brand}, 's{brand}', 't', 'light', max(id), {at}, {at} FROM media;
INSERT INTO bio_links (page_id, position, title, url, is_primary)
SELECT max(id), 0, 't', 'https://x.test', FALSE FROM bio_pages;
INSERT INTO webhook_attempts (delivery_id, number, started_at, duration_ms, outcome)
SELECT max(id), 1, {at}, 1, '2xx' FROM webhook_deliveries;
