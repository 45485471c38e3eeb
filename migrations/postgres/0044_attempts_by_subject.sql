-- Attempts are only looked for by their delivery or target, so one index is enough.
alter table webhook_attempts drop constraint webhook_attempts_pkey;
drop index webhook_attempts_delivery;
alter table webhook_attempts add constraint webhook_attempts_delivery primary key (delivery_id, id);

alter table target_attempts drop constraint target_attempts_pkey;
drop index target_attempts_target;
alter table target_attempts add constraint target_attempts_target primary key (target_id, id);
