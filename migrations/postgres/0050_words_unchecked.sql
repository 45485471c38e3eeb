-- no-transaction
-- Postgres parses the text of a CHECK again for each statement that writes to its table: a quarter of the time of the
-- statement that stores a scheduled post. The words of these columns are enums in `common/domain`. The tests check them
-- (`tests/support/databases.rs`), and SQLite does everywhere, since it parses a CHECK once for each connection.
--
-- Each table is locked in a transaction of its own: a request locks several of them, in another order.
do $$
begin
    alter table jobs drop constraint if exists jobs_state_check;
    commit;
    alter table posts drop constraint if exists posts_status_check, drop constraint if exists posts_schedule_type_check;
    commit;
    alter table post_targets drop constraint if exists post_targets_status_check;
    commit;
    alter table target_attempts drop constraint if exists target_attempts_outcome_check;
    commit;
    alter table webhook_deliveries drop constraint if exists webhook_deliveries_status_check;
end
$$;
