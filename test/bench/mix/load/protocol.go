package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Protocol is what a client says to a server, and how it reads the answer.
type Protocol struct {
	Prepare []string // sent before the load, each of them answered by one line
	Request string
	Receive func(*bufio.Reader) error

	// Worker asks which of the server's workers answers on a connection, and ReceiveWorker reads its name. "" is for a
	// server of one worker.
	Worker        string
	ReceiveWorker func(*bufio.Reader) (name string, err error)
}

// HTTP asks for a page, and reads the answer whole without decompressing it. The page worker holds the
// worker's name; "" is for a server of one worker.
func HTTP(page, worker string) Protocol {
	get := func(page string) string {
		return "GET " + page + " HTTP/1.1\r\nHost: service\r\nAccept-Encoding: gzip\r\n\r\n"
	}
	p := Protocol{Request: get(page), Receive: func(in *bufio.Reader) error { return receiveHTTP(in, io.Discard) }}
	if worker != "" {
		p.Worker = get(worker)
		p.ReceiveWorker = func(in *bufio.Reader) (string, error) {
			var name strings.Builder
			err := receiveHTTP(in, &name)
			return name.String(), err
		}
	}
	return p
}

func receiveHTTP(in *bufio.Reader, body io.Writer) error {
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(body, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("the service answers %s", answer.Status))
	}
	return errors.Join(err, answer.Body.Close())
}

// Redis stores a list of that many elements, and asks for its first ten in order. Sorting costs
// the server CPU time, and reading the short answer costs the client little.
func Redis(elements int) Protocol {
	command := func(words ...string) string {
		var out strings.Builder
		fmt.Fprintf(&out, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(word), word)
		}
		return out.String()
	}
	store := []string{"RPUSH", "list"}
	for i := range elements {
		store = append(store, fmt.Sprintf("element-%06d", i*7919%elements)) // shuffled
	}
	return Protocol{
		Prepare: []string{command("DEL", "list"), command(store...)},
		Request: command("SORT", "list", "ALPHA", "LIMIT", "0", "10"),
		Receive: func(in *bufio.Reader) error {
			n, err := redisLength(in, '*')
			for ; err == nil && n > 0; n-- {
				var length int
				if length, err = redisLength(in, '$'); err == nil {
					_, err = in.Discard(length + len("\r\n"))
				}
			}
			return err
		},
	}
}

// redisLength reads a line of Redis' protocol (RESP) that gives a length.
func redisLength(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(line))
	if text == "" || text[0] != kind {
		return 0, fmt.Errorf("the service answers %q", text)
	}
	return strconv.Atoi(text[1:])
}
