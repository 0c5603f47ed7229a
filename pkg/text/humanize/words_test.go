package humanize

import (
	"testing"
	"time"
)

// check compares the text of a function for each of its arguments with the expected one.
func check[A comparable](t *testing.T, write func(A) string, want map[A]string) {
	t.Helper()
	for arg, text := range want {
		if got := write(arg); got != text {
			t.Errorf("%v: %q, want %q", arg, got, text)
		}
	}
}

func TestLasting(t *testing.T) {
	t.Parallel()
	check(t, Lasting, map[time.Duration]string{
		5 * time.Second: "5s", 65 * time.Second: "1m5s", 75 * time.Minute: "1h15m", 24 * time.Hour: "1d0h", 51 * time.Hour: "2d3h",
	})
}

func TestCount(t *testing.T) {
	t.Parallel()
	check(t, func(n int) string { return Count(n, "CPU") }, map[int]string{0: "0 CPUs", 1: "1 CPU", 2: "2 CPUs"})
	check(t, func(n int) string { return Count(n, "class") }, map[int]string{0: "0 classes", 1: "1 class", 2: "2 classes"})
}

func TestPercent(t *testing.T) {
	t.Parallel()
	check(t, Percent, map[float64]string{0: "0%", 0.456: "46%", 1: "100%"})
}

func TestCPUs(t *testing.T) {
	t.Parallel()
	check(t, CPUs[int64], map[int64]string{0: "0", 49: "0", 50: "0.1", 3000: "3", 12449: "12.4", 12450: "12.5"})
	check(t, AlignedCPUs[int64], map[int64]string{0: "0.0", 50: "0.1", 3000: "3.0", 12450: "12.5"})
}

func TestBytes(t *testing.T) {
	t.Parallel()
	check(t, Bytes, map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 64 << 30: "64 GiB", 1 << 62: "4096 PiB"})
	check(t, ShortBytes, map[int64]string{0: "0B", 999: "999B", 1000: "1K", 1536: "1.5K", 10 << 20: "10M", 3 << 29: "1.5G", 640 << 20: "640M", 1 << 62: "4E"})
}
