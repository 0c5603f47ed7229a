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

// BenchmarkStreams measures the life of a container beside 500 others, while ten clients follow
// the status each second, or as often as they may. In turns with it, call by call, it measures a
// second plugin without clients.
//
// A single percentile means little, because two plugins without clients differ as much. So there
// are many short rounds (-benchtime 40x) of each kind in turns. For each kind, the benchmark
// reports the median of all rounds, and of the ratio to the plugin without clients also the
// quartiles. "none", in which the first plugin has no clients either, shows the effect of chance.
func BenchmarkStreams(b *testing.B) {
	const containers, clients, warm, lives = 500, 10, 50, 300
	alone, watched := newSide(b, containers, nil, "burstable"), newSide(b, containers, nil, "burstable")
	alone.launch(b, sizes[2].machine)
	watched.launch(b, sizes[2].machine)
	kinds := []string{"none", "1s", "100ms"}
	measured := map[string]*rounds{}
	for _, kind := range kinds {
		measured[kind] = newRounds()
	}
	inTurns(b, warm, alone, watched)
	b.ResetTimer()
	for round := range b.N {
		for i := range kinds {
			kind := kinds[(round+i)%len(kinds)]
			var streams []io.Closer
			if kind != "none" {
				for range clients {
					streams = append(streams, follow(b, filepath.Join(watched.Dir, "status.sock"), kind))
				}
			}
			inTurns(b, lives, alone, watched)
			measured[kind].add(alone.took, watched.took)
			for _, s := range streams {
				s.Close()
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, kind := range kinds {
		measured[kind].report(b, kind)
	}
}

// inTurns runs lives of containers on each side in turns; took then holds only their times.
func inTurns(b *testing.B, lives int, sides ...*side) {
	for _, s := range sides {
		s.total, s.took = nil, nil
	}
	for range lives {
		slices.Reverse(sides)
		for _, s := range sides {
			s.life(b, protocol.Requests{CPU: 100, Memory: 64 << 20})
		}
		time.Sleep(time.Millisecond) // spreads the lives over some snapshots
	}
}

// rounds holds the percentiles of the answers in each round.
type rounds struct {
	took   map[int][]time.Duration // of the plugin with clients
	ratios map[int][]float64       // ratios to the plugin without clients
}

func newRounds() *rounds {
	return &rounds{took: map[int][]time.Duration{}, ratios: map[int][]float64{}}
}

func (r *rounds) add(alone, watched []time.Duration) {
	slices.Sort(alone)
	slices.Sort(watched)
	for _, percent := range []int{50, 99} {
		a, w := quantile(alone, percent), quantile(watched, percent)
		r.took[percent] = append(r.took[percent], w)
		r.ratios[percent] = append(r.ratios[percent], float64(w)/float64(a))
	}
}

// report reports the medians over the rounds and the quartiles of the ratios.
func (r *rounds) report(b *testing.B, kind string) {
	for percent, took := range r.took {
		ratios := r.ratios[percent]
		slices.Sort(took)
		slices.Sort(ratios)
		b.ReportMetric(float64(quantile(took, 50).Nanoseconds())/1000, fmt.Sprintf("%s-p%d-µs", kind, percent))
		b.ReportMetric(quantile(ratios, 50), fmt.Sprintf("%s-p%d-ratio", kind, percent))
		b.ReportMetric(quantile(ratios, 25), fmt.Sprintf("%s-p%d-ratio-q1", kind, percent))
		b.ReportMetric(quantile(ratios, 75), fmt.Sprintf("%s-p%d-ratio-q3", kind, percent))
	}
}

// follow reads a stream until it is closed and ignores what it reads, because the client's own
// work is not measured.
func follow(b *testing.B, socket, interval string) io.Closer {
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
	return conn
}
