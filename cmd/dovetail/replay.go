package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/replay"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	at        string
	all, diff bool
	output    choice
}

func replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Decide again what a recording has, and compare",
		Long: `Runs the engine of this program on what recorded passes saw, and compares what it decides with what was decided. The engine
is deterministic: the same version decides the same. A difference is a defect, or shows what another version does otherwise.

The exit code is 1 if anything differs.`,
		Example: `  dovetail replay decisions.rec --at 2026-11-02T03:12:00Z
  dovetail replay decisions.rec --at p-mihk3x2a-0
  dovetail replay decisions.rec --all
  dovetail replay last-week.rec --all --diff`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.all == (f.at != "") {
				return misused(cmd, errors.New("use either --at TIME|ID or --all"))
			}
			recording, err := recorder.Open(args[0])
			if err != nil {
				return err
			}
			defer recording.Close() // nothing was written
			return f.run(cmd, recording)
		},
	}
	cmd.Flags().StringVar(&f.at, "at", "", "time (the last decision before it), or ID of a decision or pass")
	cmd.Flags().BoolVar(&f.all, "all", false, "replay all passes")
	cmd.Flags().BoolVar(&f.diff, "diff", false, "list only what differs")
	bindOutput(cmd, &f.output, "table", "json", "yaml")
	withOutputFile(cmd)
	return cmd
}

// replayReport is the result of replay.
type replayReport struct {
	Passes []replay.Pass `json:"passes"`
	// Calls of the engine that were replayed, of which Skipped could not be and Different decided otherwise.
	Calls     int `json:"calls"`
	Skipped   int `json:"skipped"`
	Different int `json:"different"`
}

func (r *replayReport) add(p replay.Pass, onlyDifferent bool) {
	for i := range p.Calls {
		r.Calls++
		switch c := &p.Calls[i]; {
		case c.Skipped != "":
			r.Skipped++
		case !c.Same:
			r.Different++
		}
	}
	if len(p.Calls) > 0 && (!onlyDifferent || !p.Same()) {
		r.Passes = append(r.Passes, p)
	}
}

func (f *replayFlags) run(cmd *cobra.Command, recording *recorder.Recording) error {
	report := replayReport{Passes: []replay.Pass{}}
	in, err := f.passes(recording)
	if err != nil {
		return err
	}
	progress := newReplayProgress(cmd.ErrOrStderr())
	in.Progress = progress.show
	found := false
	err = recording.Passes(in, func(p *recorder.PassRecord) error {
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		found = true
		report.add(replay.Run(p), f.diff)
		return nil
	})
	progress.end()
	switch {
	case err != nil:
		return err
	case !found:
		return errors.New("the recording has no pass with everything that it saw")
	}
	if err := writeAs(cmd.OutOrStdout(), f.output.value, replayText{&report, f.diff}); err != nil {
		return err
	}
	if report.Different > 0 {
		return exitError
	}
	return nil
}

// passes are the passes to replay: all, or the one that --at names.
func (f *replayFlags) passes(recording *recorder.Recording) (recorder.Range, error) {
	if f.all {
		return recorder.Range{}, nil
	}
	p, err := f.pass(recording)
	if err != nil {
		return recorder.Range{}, err
	}
	return recorder.Range{Pass: p.ID}, nil
}

// pass is the pass that --at names. Most passes decide nothing: of a time, it is then the pass of the last decision before.
func (f *replayFlags) pass(recording *recorder.Recording) (*recorder.PassRecord, error) {
	p, err := recording.Pass(f.at)
	at, notTime := time.Parse(time.RFC3339, f.at)
	if err != nil || notTime != nil || len(p.Calls) > 0 {
		return p, err
	}
	decisions, _ := recording.Decisions(recorder.Selection{Brief: true})
	decisions = slices.DeleteFunc(decisions, func(d recorder.Decision) bool { return d.At.After(at) })
	if len(decisions) == 0 {
		return p, nil
	}
	return recording.Pass(decisions[len(decisions)-1].ID)
}

// replayText is the report for people; with diff, without what is the same.
type replayText struct {
	*replayReport
	diff bool
}

// JSON prints all of it.
func (t replayText) JSON(out io.Writer) error {
	return report.JSON(out, "ReplayReport", t.replayReport)
}

// Text prints a line per call, and what differs.
func (t replayText) Text(out io.Writer) error {
	found := t.replayReport
	for i := range found.Passes {
		p := &found.Passes[i]
		for _, c := range p.Calls {
			verdict := "same"
			switch {
			case c.Skipped != "":
				verdict = "skipped: " + c.Skipped
			case !c.Same:
				verdict = "DIFFERENT"
			}
			if t.diff && c.Same {
				continue
			}
			fmt.Fprintf(out, "%s  %s  %-8s %s\n", p.At, p.ID, c.Call, verdict)
			for _, change := range c.Changes {
				if change.Was != "" {
					fmt.Fprintf(out, "  - %s\n", change.Was)
				}
				if change.Is != "" {
					fmt.Fprintf(out, "  + %s\n", change.Is)
				}
			}
		}
	}
	_, err := fmt.Fprintf(out, "%s of the engine replayed: %d different, %d skipped\n",
		report.Plural(found.Calls, "call"), found.Different, found.Skipped)
	return err
}

// replayProgress shows how far a long replay is.
type replayProgress struct {
	out    io.Writer
	began  time.Time
	shown  time.Time
	active bool
}

func newReplayProgress(out io.Writer) *replayProgress {
	return &replayProgress{out: out, began: time.Now()}
}

// show prints the share of the recording, every second from the second second on.
func (p *replayProgress) show(done, total int) {
	now := time.Now()
	if now.Sub(p.began) < 2*time.Second || now.Sub(p.shown) < time.Second {
		return
	}
	p.shown, p.active = now, true
	fmt.Fprintf(p.out, "\rreplaying: %d of %d frames", done, total)
}

func (p *replayProgress) end() {
	if p.active {
		fmt.Fprintln(p.out)
	}
}
