<?php
// WEBHOOK_SECRET=whsec_… php -S 127.0.0.1:9999 receiver.php
declare(strict_types=1);

const TOLERANCE = 5 * 60; // seconds

function verify(string $secret, string $header, string $body): bool
{
    $values = ['t' => [], 'v1' => []];
    foreach (explode(',', $header) as $field) {
        [$name, $value] = explode('=', $field, 2) + [1 => ''];
        $values[$name][] = $value;
    }
    if (count($values['t']) !== 1 || !preg_match('/^[0-9]+$/D', $values['t'][0])) {
        return false;
    }
    $time = $values['t'][0];
    $expected = hash_hmac('sha256', "$time.$body", $secret);
    $matches = array_filter($values['v1'], fn (string $signature): bool => hash_equals($expected, $signature));
    return $matches !== [] && abs(time() - (int) $time) <= TOLERANCE;
}

function work(string $delivery, string $body): void
{
    // In your service, this is a table: INSERT … ON CONFLICT DO NOTHING, in the transaction that stores the work.
    $seen = sys_get_temp_dir() . '/webhooks-' . hash('sha256', getenv('WEBHOOK_SECRET') . $delivery);
    if (@fopen($seen, 'x') === false) {
        return;
    }
    $event = json_decode($body, true, flags: JSON_THROW_ON_ERROR);
    error_log($event['event'] . ' ' . json_encode($event['data']));
}

$secret = getenv('WEBHOOK_SECRET') ?: throw new RuntimeException('WEBHOOK_SECRET is not set');
$body = file_get_contents('php://input'); // the unmodified bytes: verify them before parsing
if (!verify($secret, $_SERVER['HTTP_X_WEBHOOK_SIGNATURE'] ?? '', $body)) {
    http_response_code(400);
    exit;
}
// Respond quickly: with PHP-FPM, fastcgi_finish_request() sends the response before the work is done.
http_response_code(204);
work($_SERVER['HTTP_X_WEBHOOK_DELIVERY_ID'] ?? '', $body);
