-- A foreign key locks the parent's row for each row that is inserted: a WAL record and a changed page for each, and a
-- multixact whenever two requests of one user, brand or endpoint lock the same row. The keys below guarded little. What
-- they did for children is done by triggers: these are deleted with their parents.
create function delete_children() returns trigger language plpgsql as $$
begin
    execute format('delete from %I where %I = $1', tg_argv[0], tg_argv[1]) using old.id;
    return null;
end
$$;

-- No code deletes workspaces, brands or events.
alter table brands drop constraint brands_workspace_id_fkey;
create trigger delete_brands after delete on workspaces
    for each row execute function delete_children('brands', 'workspace_id');
alter table brand_members drop constraint brand_members_brand_id_fkey;
create trigger delete_brand_members after delete on brands
    for each row execute function delete_children('brand_members', 'brand_id');
alter table posts drop constraint posts_brand_id_fkey;
create trigger delete_posts after delete on brands
    for each row execute function delete_children('posts', 'brand_id');
alter table webhook_deliveries drop constraint webhook_deliveries_event_id_fkey;
create trigger delete_webhook_deliveries after delete on events
    for each row execute function delete_children('webhook_deliveries', 'event_id');

-- The child is inserted by the statement that updates its parent, or while the parent is locked.
alter table post_targets drop constraint post_targets_post_id_fkey;
create trigger delete_post_targets after delete on posts
    for each row execute function delete_children('post_targets', 'post_id');
alter table target_attempts drop constraint target_attempts_target_id_fkey;
create trigger delete_target_attempts after delete on post_targets
    for each row execute function delete_children('target_attempts', 'target_id');
alter table webhook_attempts drop constraint webhook_attempts_delivery_id_fkey;
create trigger delete_webhook_attempts after delete on webhook_deliveries
    for each row execute function delete_children('webhook_attempts', 'delivery_id');

-- A child that is inserted while its parent is deleted stays. Members and authors are always looked up together with their
-- users; a response is swept after a day; the job of a delivery without an endpoint deletes it.
alter table brand_members drop constraint brand_members_user_id_fkey;
create trigger delete_brand_members after delete on users
    for each row execute function delete_children('brand_members', 'user_id');
alter table idempotency_keys drop constraint idempotency_keys_api_key_id_fkey;
create trigger delete_idempotency_keys after delete on api_keys
    for each row execute function delete_children('idempotency_keys', 'api_key_id');
alter table webhook_deliveries drop constraint webhook_deliveries_webhook_id_fkey;
create trigger delete_webhook_deliveries after delete on webhooks
    for each row execute function delete_children('webhook_deliveries', 'webhook_id');
alter table posts drop constraint posts_author_id_fkey;
create function clear_author() returns trigger language plpgsql as $$
begin
    update posts set author_id = null where author_id = old.id;
    return null;
end
$$;
create trigger clear_author after delete on users for each row execute function clear_author();
