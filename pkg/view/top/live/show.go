package live

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/sluice-dev/sluice/pkg/view/top"
)

// usualWidth is the width of text if neither a terminal nor COLUMNS sets one.
const usualWidth = 80

// Show runs Watch if out is a terminal that can move its cursor. Otherwise, and with once, it
// writes one frame as text.
func Show(ctx context.Context, out io.Writer, from Source, interval time.Duration, once bool, show top.Options) error {
	file, isFile := out.(*os.File)
	canMove := isFile && term.IsTerminal(file.Fd()) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
	show.Colour = canMove && os.Getenv("NO_COLOR") == ""
	if !once && canMove {
		return Watch(ctx, from, interval, show)
	}
	state, err := Read(ctx, from)
	if err != nil {
		return err
	}
	show.Width = usualWidth
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		show.Width = width
	} else if isFile {
		if width, _, err := term.GetSize(file.Fd()); err == nil && width > 0 {
			show.Width = width
		}
	}
	_, err = fmt.Fprintln(out, top.Render(state, show))
	return err
}
