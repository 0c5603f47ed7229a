package bench

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/protocol"
)

// BenchmarkStreams is the life of a container beside 500 others, while ten clients
// follow the status each second, or as often as they may. The floor is a plugin of the
// same kind that nobody asks (reported as "noop"), its calls interleaved.
func BenchmarkStreams(b *testing.B) {
	const containers, clients = 500, 10
	for _, interval := range []string{"none", "1s", "100ms"} {
		b.Run("interval="+interval, func(b *testing.B) {
			alone, watched := newSide(b, containers, nil, "burstable"), newSide(b, containers, nil, "burstable")
			alone.launch(b, sizes[2].machine)
			watched.launch(b, sizes[2].machine)
			if interval != "none" {
				for range clients {
					follow(b, filepath.Join(watched.Dir, "status.sock"), interval)
				}
			}
			sides := []*side{alone, watched}
			const warm = 50
			for i := range warm + b.N {
				if i == warm {
					for _, s := range sides {
						s.total, s.took = nil, nil
					}
					b.ResetTimer()
				}
				slices.Reverse(sides)
				for _, s := range sides {
					s.life(b, protocol.Requests{CPU: 100, Memory: 64 << 20})
				}
				time.Sleep(time.Millisecond) // spread over some snapshots
			}
			b.ReportMetric(0, "ns/op")
			report(b, "handler", alone.took, watched.took)
		})
	}
}

// follow reads a stream until the benchmark's end, and does nothing with it: the
// client's own work is not to be measured.
func follow(b *testing.B, socket, interval string) {
	b.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET /v1/stream?interval=%s HTTP/1.1\r\nHost: sluice\r\n\r\n", interval); err != nil {
		b.Fatal(err)
	}
	go io.Copy(io.Discard, conn)
}
