package statusapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/sluice-dev/sluice/pkg/status"
)

// maxConfig bounds a configuration: the shipped one with all its comments is 20 KiB.
const maxConfig = 1 << 20

// ConfigRoute answers what a configuration would change: its text is the body.
func ConfigRoute(ask func(text []byte) (*status.ConfigDiff, error)) Route {
	return Route{Pattern: "POST /v1/config", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxConfig))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			http.Error(w, "a configuration is a text of at most 1 MiB", http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			return // the client has gone
		}
		diff, err := ask(text)
		answer(w, diff, err)
	})}
}

// ConfigDiff asks what a configuration would change on the node.
func (c *Client) ConfigDiff(ctx context.Context, text []byte) (*status.ConfigDiff, error) {
	var d status.ConfigDiff
	return &d, c.do(ctx, http.MethodPost, "/v1/config", text, &d)
}
