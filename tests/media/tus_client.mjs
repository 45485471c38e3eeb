// Uploads a file with tus-js-client, and prints what happened.
import { readFileSync } from 'node:fs';
import * as tus from 'tus-js-client';

const { UPLOAD_ENDPOINT: endpoint, UPLOAD_KEY: key, UPLOAD_FILE: file } = process.env;
let [mediaId, retries, resumedAt] = [null, 0, null];
const upload = new tus.Upload(readFileSync(file), {
  endpoint,
  headers: { Authorization: `Bearer ${key}` },
  metadata: { filename: 'bread.mp4', asset_type: 'video', alt_text: 'Fresh bread' },
  retryDelays: [0, 200, 500, 1000, 2000, 5000, 5000],
  onShouldRetry: (error) => {
    const status = error.originalResponse?.getStatus() ?? 0;
    retries += 1;
    return status < 400 || status >= 500 || status === 409 || status === 423;
  },
  onAfterResponse: (request, response) => {
    if (request.getMethod() === 'HEAD') resumedAt = Number(response.getHeader('Upload-Offset'));
    mediaId = response.getHeader('Crier-Media-Id') ?? mediaId;
  },
  onError: (error) => {
    console.error(String(error));
    process.exit(1);
  },
  onSuccess: () => console.log(JSON.stringify({ mediaId, retries, resumedAt })),
});
upload.start();
