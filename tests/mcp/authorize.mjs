// A proxy that adds the API key, for clients that cannot send one: `authorize.mjs PORT TARGET-PORT`.
// Its own host becomes that of the target, which the public URL has. Any other host or origin passes unchanged, so that
// the target can reject it.
import http from 'node:http';

const [port, target] = process.argv.slice(2);
const renamed = (value) => value?.replace(`127.0.0.1:${port}`, `127.0.0.1:${target}`);

http.createServer((request, response) => {
    const headers = { authorization: `Bearer ${process.env.KEY}`, ...request.headers };
    for (const name of ['host', 'origin']) if (headers[name]) headers[name] = renamed(headers[name]);
    const { method, url: path } = request;
    const forwarded = http.request({ host: '127.0.0.1', port: target, method, path, headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
    });
    forwarded.on('error', () => response.destroy());
    // A client that cancels closes its connection.
    response.on('close', () => forwarded.destroy());
    request.pipe(forwarded);
}).listen(Number(port), '127.0.0.1');
