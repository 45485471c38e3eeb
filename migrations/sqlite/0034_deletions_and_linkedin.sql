-- LinkedIn pages are looked at from now on. Of persons nothing can be read.
insert into inbox_syncs (account_id, next_sync_at, created_at, updated_at, cursors)
select id, created_at, created_at, created_at, '{}'
from social_accounts
where platform = 'linkedin'
    and external_id like 'urn:li:organization:%'
on conflict (account_id)
do update set next_sync_at = excluded.next_sync_at;
