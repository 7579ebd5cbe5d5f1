-- What happened to an order: every message about it, in the order in which it happened. Amounts are cents.
--
--     kourou pipeline sql --file order_life.sql --param order_id=… -n 127.0.0.1:9876 --archive archive
SELECT get_json_object(value, '$.at') AS at,
       tags AS kind,
       get_json_object(value, '$.way') AS way,
       coalesce(get_json_object(value, '$.amount'), get_json_object(value, '$.amount_due')) AS amount,
       get_json_object(value, '$.payment_id') AS payment_id,
       get_json_object(value, '$.reason') AS reason,
       topic, queue_id, queue_offset, msg_id
FROM (
    SELECT value, tags, keys, topic, queue_id, queue_offset, msg_id FROM `shop-orders`
    UNION ALL
    SELECT value, tags, keys, topic, queue_id, queue_offset, msg_id FROM `shop-payments`
    UNION ALL
    SELECT value, tags, keys, topic, queue_id, queue_offset, msg_id FROM `shop-timeouts`
)
WHERE array_contains(keys, :order_id)
ORDER BY at, kind, queue_offset
