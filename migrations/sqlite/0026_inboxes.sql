-- Accounts of platforms whose inbox is read from now on are looked at, those of platforms without one are not.
insert into inbox_syncs (account_id, next_sync_at, created_at, updated_at, cursors)
select id, created_at, created_at, created_at, '{}'
from social_accounts
where platform in ('bluesky', 'mastodon', 'telegram', 'wordpress', 'woocommerce', 'google_business', 'reddit')
on conflict (account_id)
do update set next_sync_at = excluded.next_sync_at;

delete from inbox_syncs
where account_id in (
    select id
    from social_accounts
    where platform not in (
        'sandbox', 'bluesky', 'mastodon', 'telegram', 'wordpress', 'woocommerce', 'google_business', 'reddit'
    )
);
