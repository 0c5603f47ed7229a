package main

import (
	"os"
	"sync/atomic"
	"syscall"
)

// toggle keeps one CPU busy from each SIGUSR1 to the next SIGUSR2, until SIGTERM.
func toggle(term, orders <-chan os.Signal) {
	busy := false
	var rest *atomic.Bool // ends the present load
	for {
		select {
		case <-term:
			return
		case order := <-orders:
			switch {
			case order == syscall.SIGUSR1 && !busy:
				rest = new(atomic.Bool)
				go burn(rest)
			case order == syscall.SIGUSR2 && busy:
				rest.Store(true)
			}
			busy = order == syscall.SIGUSR1
		}
	}
}
