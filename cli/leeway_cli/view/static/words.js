// Numbers and times in words, as the command line has them.

const MONTH_HOURS = 730;

export const clock = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (n) => String(n).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
};

export const time = (at) => new Date(at * 1000).toISOString().slice(11, 19);

export const counted = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

export const percent = (share) => `${Math.round(share * 100)}%`;

export const month = (perHour) =>
  (perHour * MONTH_HOURS).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const share = ([requested, allocatable]) => (allocatable ? requested / allocatable : 0);

export const cpu = (millicores) => `${Number((millicores / 1000).toFixed(2))} vCPU`;

export const memory = (bytes) =>
  bytes >= 2 ** 30 ? `${Number((bytes / 2 ** 30).toFixed(1))} GiB` : `${Math.round(bytes / 2 ** 20)} MiB`;

// `retires in 1:12`: the words, and the clock if they have one. That of a start counts up.
export const next = (node, now) => {
  if (node.clockAt === undefined) return node.next ?? "";
  return `${node.next} ${clock(node.fate === "starting" ? now - node.clockAt : node.clockAt - now)}`;
};
