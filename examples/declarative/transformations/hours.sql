-- Orders by hour, of the table that orders.py fills.
CREATE MATERIALIZED VIEW hours AS
SELECT date_trunc('HOUR', time) AS hour, count(*) AS orders, max(total) AS dearest
FROM orders
GROUP BY 1;
