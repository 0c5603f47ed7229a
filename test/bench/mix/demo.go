package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/runtime"
)

// demoHog is the demo's batch work: threads that use all CPU time that they get.
const demoHog = "cpu"

// demoLoad changes every second, so that the amount of batch work that suits one second is too
// much in the next.
func demoLoad() demand { return demand{10, 60} }

// stage is one of the demo's measurements.
type stage struct {
	title  string
	cell   cell
	settle time.Duration
}

func stages(o options) []stage {
	short := min(o.settle, 2*time.Second)
	return []stage{
		{"The service alone", cell{demoLoad(), "", setting{name: report.Alone}}, short},
		{"Batch work alone", cell{demand{}, demoHog, setting{name: report.HogAlone, hog: batchPods}}, short},
		{"Both, with the CPU shares that Kubernetes gives them", cell{demoLoad(), demoHog, setting{name: report.Kubernetes, hog: batchPods}}, short},
		{"Both, with Sluice", cell{demoLoad(), demoHog, setting{name: report.Sluice, hog: batchPods}}, o.settle},
	}
}

// demo measures each setting once for some seconds and draws the results. If enter isn't nil,
// Sluice and the load then continue until a line can be read from it.
func demo(ctx context.Context, o options, out io.Writer, enter io.Reader) (err error) {
	if err := runtime.Unavailable(runtime.Options{}); err != nil {
		return fmt.Errorf("%w\n`make demo-placement` shows how Sluice places pods, on a simulated machine and without root", err)
	}
	began := time.Now()
	fmt.Fprintf(out, "A private containerd runs a service and batch work in containers. A request costs the\n"+
		"service %.0f ms of CPU time. The requests need %d %% of this machine's CPUs in one second and\n"+
		"%d %% in the next. Batch work takes all CPU time that it gets.\n\n", o.work.Seconds()*1000, demoLoad().low, demoLoad().high)
	b, err := newBed(ctx, o, runtime.Resources{CPURequest: request, MemoryRequest: 256 * mib}, []string{demoHog})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	r := &report.Report{}
	var page string
	all := stages(o)
	for i, s := range all {
		fmt.Fprintf(out, "[%d/%d] %s (%.0f s)\n", i+1, len(all), s.title, (s.settle + o.slice).Seconds())
		if s.cell.setting.name == report.Sluice {
			var leave func() error
			if page, leave, err = b.managedWithPage(ctx); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, leave()) }()
			fmt.Fprintf(out, "      Watch this node meanwhile: %s\n", page)
		}
		o.settle = s.settle
		got, err := b.once(ctx, o, s.cell, o.seed)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
		r.Cells = append(r.Cells, (&tally{cell: s.cell, all: []outcome{got}}).summary())
	}
	fmt.Fprintf(out, "\n%s\n%s", r.Bars(demoLoad().String(), demoHog), caveats(r, o, time.Since(began)))
	if enter == nil {
		return nil
	}
	fmt.Fprintf(out, "\nThe load goes on, and the page stays at %s, until you press Enter.\n", page)
	return b.goOn(ctx, o, enter)
}

// managedWithPage runs Sluice with the node map, and returns the page's address once it answers.
func (b *bed) managedWithPage(ctx context.Context) (page string, leave func() error, err error) {
	address, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	leave, err = b.manage(fmt.Sprintf("%s\nweb: {listen: %q}\n", strings.TrimSpace(defaultConfig), address))
	if err != nil {
		return "", nil, err
	}
	page = "http://" + address + "/"
	err = await(ctx, page, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	if err != nil {
		return "", nil, errors.Join(err, leave())
	}
	return page, leave, nil
}

// freeAddress is the documentation's address of the page, or another one if a program
// listens there already.
func freeAddress() (string, error) {
	for _, address := range []string{"127.0.0.1:8437", "127.0.0.1:0"} {
		l, err := net.Listen("tcp", address)
		if err == nil {
			address = l.Addr().String()
			return address, l.Close()
		}
	}
	return "", errors.New("no TCP port is free on 127.0.0.1")
}

// caveats says how far the figures can be trusted.
func caveats(r *report.Report, o options, took time.Duration) string {
	var out strings.Builder
	alone, _ := r.Find(demoLoad().String(), "", report.Alone)
	managed, _ := r.Find(demoLoad().String(), demoHog, report.Sluice)
	fmt.Fprintf(&out, "The machine's CPUs were %.0f %% busy with the service alone and %.0f %% with batch work and Sluice.\n",
		100*alone.Busy, 100*managed.Busy)
	for _, c := range r.Cells {
		if c.Other > o.maxOther || c.Late99 > o.maxLate || c.Steal > 0.02 {
			fmt.Fprintf(&out, "Don't trust the figures of this run: other programs or virtual machines used the CPUs meanwhile\n"+
				"(setting %q: %.1f CPUs of other programs, %.0f %% stolen by the hypervisor, requests sent %s late).\n",
				c.Setting, c.Other, 100*c.Steal, c.Late99.Round(10*time.Microsecond))
			break
		}
	}
	fmt.Fprintf(&out, "Each setting was measured once, for %.0f seconds, which is noisy. `make bench-mix` measures each several times\n"+
		"in random order; docs/performance.md has its results. The demo took %.0f seconds.\n", o.slice.Seconds(), took.Seconds())
	return out.String()
}

// goOn keeps the service and batch work busy until a line can be read.
func (b *bed) goOn(ctx context.Context, o options, enter io.Reader) error {
	pressed := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(enter).ReadString('\n') // an end of the input counts as well
		close(pressed)
	}()
	o.settle, o.slice = stepTime, stepTime
	for seed := o.seed; ; seed++ {
		select {
		case <-pressed:
			return nil
		case <-ctx.Done():
			return nil
		default:
		}
		if _, err := b.measure(ctx, slice{
			phases: b.phases(o, demoLoad()), seed: seed, patience: o.patience, hog: b.hogs[hogKey{demoHog, batchPods}],
		}); err != nil {
			return err
		}
	}
}

// terminal is standard input if a person sits at it, else nil.
func terminal() io.Reader {
	if term.IsTerminal(os.Stdin.Fd()) && term.IsTerminal(os.Stdout.Fd()) {
		return os.Stdin
	}
	return nil
}
