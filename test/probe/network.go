package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluice-dev/sluice/test/probe/wire"
)

// echo sends back what comes to the port of every address, until this process ends.
func echo(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	go func() { _ = accept(listener, func(conn net.Conn) { _, _ = io.Copy(conn, conn) }) }()
	return nil
}

// sink counts the bytes that come to the port of every address until SIGTERM.
func sink(port int, term <-chan os.Signal) error {
	counters, err := shared(wire.Counters, wire.CounterSlot)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	counter := (*atomic.Uint64)(unsafe.Pointer(&counters[0]))
	failed := make(chan error, 1)
	go func() { failed <- accept(listener, func(conn net.Conn) { count(conn, counter) }) }()
	select {
	case <-term:
		return nil
	case err := <-failed:
		return err
	}
}

// accept serves each connection by itself, and closes it after that.
func accept(listener net.Listener, serve func(net.Conn)) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }()
			serve(conn)
		}()
	}
}

// count reads until the end of the connection.
func count(conn net.Conn, received *atomic.Uint64) {
	chunk := make([]byte, 256<<10)
	for {
		n, err := conn.Read(chunk)
		received.Add(uint64(n))
		if err != nil {
			return
		}
	}
}

// send writes to that many connections until SIGTERM. It makes one that ended anew, also if nobody
// listens yet.
func send(address string, connections int, term <-chan os.Signal) {
	for range connections {
		go func() {
			chunk := make([]byte, 256<<10)
			for ; ; time.Sleep(50 * time.Millisecond) {
				conn, err := net.DialTimeout("tcp", address, time.Second)
				for err == nil {
					_, err = conn.Write(chunk)
				}
				if conn != nil {
					_ = conn.Close()
				}
			}
		}()
	}
	<-term
}
