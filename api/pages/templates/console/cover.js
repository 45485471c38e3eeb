// Chooses the cover of a video by a position in the first chosen video of the post.
(() => {
  'use strict';
  const form = document.querySelector('[data-composer]');
  const showAll = () => {
    const source = form.querySelector('#f-media [data-video]:checked')?.dataset.video;
    for (const box of form.querySelectorAll('.scrub')) {
      const [video, range, text] = box.children;
      const seconds = box.parentElement.querySelector('[type=number]');
      box.hidden = !source;
      if (!source || video.getAttribute('src') === source) continue;
      const seek = () => {
        video.currentTime = Number(seconds.value);
        text.textContent = seconds.value ? `Cover at ${seconds.value} s` : '';
      };
      video.onloadedmetadata = () => {
        range.max = video.duration;
        range.value = Number(seconds.value);
        seek();
      };
      range.oninput = () => { seconds.value = range.value; seek(); };
      seconds.oninput = () => { range.value = Number(seconds.value); seek(); };
      video.src = source;
    }
  };
  form.addEventListener('input', (event) => { if (event.target.name === 'media') showAll(); });
  showAll();
})();
