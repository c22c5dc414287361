// Package screen runs the model of package top in a terminal.
package screen

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Terminal states where the model is shown.
type Terminal struct {
	Input  io.Reader
	Output io.Writer
	// Environment has TERM, NO_COLOR and the like.
	Environment []string
}

// framesPerSecond bounds how often the terminal is written. A key is then shown within 50 ms, which people perceive as at once.
const framesPerSecond = 20

// Model is the state of a screen: top.Model or top.Overview.
type Model[M any] interface {
	Update(message any) M
	View() string
	HasQuit() bool
}

// Run shows the model until the user quits or the context is canceled, and restores the terminal. Source sends messages until
// its context is canceled.
func Run[M Model[M]](ctx context.Context, t Terminal, m M, source func(ctx context.Context, send func(any))) error {
	inner, stop := context.WithCancel(ctx)
	program := tea.NewProgram(adapter[M]{model: m},
		tea.WithContext(ctx), tea.WithInput(t.Input), tea.WithOutput(t.Output), tea.WithEnvironment(t.Environment),
		tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler(),
	)
	var sending sync.WaitGroup
	sending.Go(func() { source(inner, func(message any) { program.Send(message) }) })
	_, err := program.Run()
	stop()
	sending.Wait()
	if ctx.Err() != nil {
		return context.Canceled
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return context.Canceled
	}
	return err
}

// adapter is the model as Bubble Tea sees it.
type adapter[M Model[M]] struct {
	model M
}

// Init implements tea.Model.
func (adapter[M]) Init() tea.Cmd { return tick() }

// tickInterval sets how often ages are drawn anew.
const tickInterval = 5 * time.Second

func tick() tea.Cmd {
	return tea.Tick(tickInterval, func(now time.Time) tea.Msg { return top.Tick(now) })
}

// Update implements tea.Model.
func (a adapter[M]) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.KeyPressMsg:
		a.model = a.model.Update(top.Key(key(message)))
	case tea.WindowSizeMsg:
		a.model = a.model.Update(top.Resize{Width: message.Width, Height: message.Height})
	case top.Tick:
		a.model = a.model.Update(message)
		return a, tick()
	case top.Observed, top.Predicted, top.From:
		a.model = a.model.Update(message)
	default:
		return a, nil
	}
	if a.model.HasQuit() {
		return a, tea.Quit
	}
	return a, nil
}

// key names a key: what it types, if it types something.
func key(k tea.KeyPressMsg) string {
	if k.Text != "" && k.Text != " " {
		return k.Text
	}
	return k.String()
}

// View implements tea.Model.
func (a adapter[M]) View() tea.View {
	v := tea.NewView(a.model.View())
	v.AltScreen = true
	return v
}
