-- Rows of a workspace and its user, in every table in which they have rows. The test replaces the names in braces.
INSERT INTO usage (workspace_id, month) VALUES ({workspace}, '2026-01');
INSERT INTO usage_slots (workspace_id, month, slot, posts) VALUES ({workspace}, '2026-01', 0, 1);
INSERT INTO ai_usage (workspace_id, month, used) VALUES ({workspace}, '2026-01', 2);
INSERT INTO ai_reservations (workspace_id, brand_id, month, operation, credits, lease_until)
VALUES ({workspace}, {brand}, '2026-01', 'captions', 1, {at});
INSERT INTO ai_brand_usage (workspace_id, month, brand_id, operation, requests, credits)
VALUES ({workspace}, '2026-01', {brand}, 'captions', 1, 1);
INSERT INTO key_brands (api_key_id, brand_id) VALUES ({key}, {brand});
INSERT INTO sessions (api_key_id, user_agent, address) VALUES ({key}, 'a', '203.0.113.1');
INSERT INTO idempotency_keys (api_key_id, key, fingerprint, created_at) VALUES ({key}, 'k', 'f', {at});
INSERT INTO sign_in_links (hash, user_id, expires_at) VALUES ('l{user}', {user}, {at});
INSERT INTO oauth_grants (api_key_id, expires_at, client_id, client_name, redirect_host)
VALUES ({key}, {at}, 'c', 'n', 'h');
INSERT INTO oauth_codes (
    hash, user_id, expires_at, grant_id, client_id, client_name, redirect_uri, redirect_host, code_challenge,
    scopes
)
VALUES ('c{user}', {user}, {at}, {key}, 'c', 'n', 'u', 'h', 'x', 's');
INSERT INTO oauth_tokens (hash, grant_id, kind, expires_at) VALUES ('o{user}', {key}, 'access', {at});
INSERT INTO report_mail_stops (workspace_id, recipient, reason, created_at) VALUES ({workspace}, 'r', 'x', {at});
INSERT INTO notices (user_id, kind, subject_id, created_at) VALUES ({user}, 'post_failed', 1, {at});
INSERT INTO mail_counts (workspace_id, day, kind, recipient, mails)
VALUES ({workspace}, '2026-01-01', 'report', '', 1);
INSERT INTO sandbox_handles (handle, workspace_id) VALUES ('h{workspace}', {workspace});
INSERT INTO sandbox_posts (handle, key, content, created_at, media)
VALUES ('h{workspace}', 'k{workspace}', 'c', {at}, '[]');
INSERT INTO sandbox_comments (post_id, name, body, created_at, handle)
SELECT max(id), 'n', 'b', {at}, 'h{workspace}' FROM sandbox_posts;
