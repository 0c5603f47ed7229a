package web

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/sluice-dev/sluice/pkg/view/web"
)

// box returns an element's position in the window.
func (p *tab) box(selector string) (box struct{ Left, Top, Right, Bottom, Width, Height float64 }) {
	p.Helper()
	p.eval(fmt.Sprintf(`(({ left, top, right, bottom, width, height }) => ({ left, top, right, bottom, width, height }))(document.querySelector('%s').getBoundingClientRect())`, selector), &box)
	return box
}

// openSized opens a node's page in a window of that size.
func openSized(t *testing.T, browser context.Context, machine string, containers int, width, height int64) *tab {
	t.Helper()
	n, err := newNode(machine, containers)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, browser, serve(t, n, web.Options{}))
	p.do(emulation.SetDeviceMetricsOverride(width, height, 1, false))
	p.drawn()
	return p
}

// A few CPUs fill the width of the map, show their loads as numbers, and have the containers right
// below them.
func testSmallMachines(t *testing.T, browser context.Context) {
	for _, c := range []struct {
		machine    string
		containers int
	}{
		{"2 cores memory 4G", 6}, {"4 cores", 12}, {"4 cores 2 threads", 30}, {"8 cores 2 threads", 60},
		{"2 packages 2 cores", 12}, {"8 cores l3 2 cores", 30},
	} {
		p := openSized(t, browser, c.machine, c.containers, 1360, 900)
		grid, machine, table := p.box("#map"), p.box("#machine"), p.box("#containers")
		if cell := p.box(".core .c"); cell.Width < 70 || cell.Height < 50 {
			t.Errorf("%s: a CPU is %.0f by %.0f pixels", c.machine, cell.Width, cell.Height)
		}
		var right float64
		p.eval(`Math.max(...[...document.querySelectorAll('.core .c')].map((c) => c.getBoundingClientRect().right))`, &right)
		if right < grid.Right-30 {
			t.Errorf("%s: the CPUs end at %.0f, the map at %.0f", c.machine, right, grid.Right)
		}
		if gap := table.Top - machine.Bottom; gap > 20 || table.Top > 750 {
			t.Errorf("%s: the containers begin at %.0f, %.0f below the machine", c.machine, table.Top, gap)
		}
		if empty := machine.Bottom - p.box("#as-table").Bottom; empty > 20 {
			t.Errorf("%s: the last %.0f pixels of the machine are empty", c.machine, empty)
		}
		p.want(`getComputedStyle(document.querySelector('[data-cpu="1"]'), '::before').content.startsWith('"CPU 1')`, "true")
		p.want(`/^[0-9]+ %$/.test(document.querySelector('[data-cpu="1"]').dataset.busy)`, "true")
		p.want(`document.documentElement.scrollWidth <= window.innerWidth`, "true")
	}
}

// The whole map of 512 CPUs fits on the first screen.
func testLargeMachine(t *testing.T, browser context.Context) {
	p := openSized(t, browser, bigMachine, bigCount, 1360, 900)
	if grid := p.box("#map"); grid.Bottom > 900 {
		t.Errorf("the map ends at %.0f", grid.Bottom)
	}
	if cell := p.box(".core .c"); cell.Width > 20 {
		t.Errorf("a CPU is %.0f pixels wide", cell.Width)
	}
	p.want(`document.querySelectorAll('[data-busy]').length`, "0")
	if gap := p.box("#containers").Top - p.box("#machine").Bottom; gap > 20 {
		t.Errorf("the containers are %.0f below the machine", gap)
	}
}

// On a telephone the page only scrolls vertically, and a selected container is visible.
func testPhone(t *testing.T, browser context.Context) {
	for _, machine := range []string{"8 cores 2 threads", bigMachine} {
		p := openSized(t, browser, machine, 60, 390, 844)
		p.want(`document.documentElement.scrollWidth <= window.innerWidth`, "true")
		p.want(`[...document.querySelectorAll('.c')].every((c) => c.getBoundingClientRect().right <= window.innerWidth)`, "true")
		p.eval(`document.querySelector('#table tbody button').scrollIntoView(); document.querySelector('#table tbody button').click()`, nil)
		p.until(`!document.querySelector('#details').hidden`)
		if details := p.box("#details"); details.Top < 300 || details.Bottom > 844 || details.Width != 390 {
			t.Errorf("%s: the details are at %+v", machine, details)
		}
		p.want(`document.documentElement.scrollWidth <= window.innerWidth`, "true")
	}
}
