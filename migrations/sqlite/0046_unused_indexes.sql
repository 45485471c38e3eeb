-- No code deletes events: their deliveries need not be found for that.
drop index webhook_deliveries_event;
