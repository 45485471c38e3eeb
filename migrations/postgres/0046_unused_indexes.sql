-- No code deletes events: their deliveries need not be found for that.
drop index webhook_deliveries_event;

-- Posts of the simulated platform are only looked for by their handle, or by their key. Their two foreign keys are
-- triggers now, as those of 0043. No code deletes handles; a post is locked while a comment is added.
alter table sandbox_comments drop constraint sandbox_comments_post_id_fkey;
create trigger delete_sandbox_comments after delete on sandbox_posts
    for each row execute function delete_children('sandbox_comments', 'post_id');
alter table sandbox_posts drop constraint sandbox_posts_handle_fkey;
create function delete_sandbox_posts() returns trigger language plpgsql as $$
begin
    delete from sandbox_posts where handle = old.handle;
    return null;
end
$$;
create trigger delete_sandbox_posts after delete on sandbox_handles
    for each row execute function delete_sandbox_posts();
alter table sandbox_posts drop constraint sandbox_posts_pkey;
drop index sandbox_posts_handle;
alter table sandbox_posts add constraint sandbox_posts_handle primary key (handle, id);
