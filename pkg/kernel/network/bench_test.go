package network

import "testing"

// BenchmarkPod reads what a pod has sent, which happens four times a second, and changes its limit.
func BenchmarkPod(b *testing.B) {
	needRoot(b)
	host := thisHost(b)
	from, to := newSandbox(b), newSandbox(b)
	connect(b, from, to, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	p := open(b, host, from)
	b.Run("sent", func(b *testing.B) {
		for b.Loop() {
			if _, err := p.Sent(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("limit", func(b *testing.B) {
		limit := int64(1e6)
		for b.Loop() {
			limit++
			if err := p.Limit(limit); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			p, err := host.Pod(from.pid, "")
			if err != nil {
				b.Fatal(err)
			}
			p.Close()
		}
	})
}
