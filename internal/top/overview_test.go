package top

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// sampleOverview has a cluster that is known, one that is being read, and one that does not answer.
func sampleOverview(w, h int) Overview {
	o := NewOverview([]Link{{Name: "production"}, {Name: "staging"}, {Name: "legacy"}}).Update(Resize{w, h})
	o = o.Update(From{0, withName(sampleObserved(), "production")}).Update(From{0, Predicted{sampleForecast()}})
	return o.Update(From{2, Observed{Link: Link{Name: "legacy", Lost: time.Unix(1, 0), LostWhy: "connection refused"}}})
}

func withName(o Observed, name string) Observed {
	o.Link.Name = name
	return o
}

func overviewText(o Overview) string {
	lines := strings.Split(ansi.Strip(o.View()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestOverviewScreens(t *testing.T) {
	golden(t, "overview-80x12.txt", overviewText(sampleOverview(80, 12)))
	golden(t, "overview-200x12.txt", overviewText(sampleOverview(200, 12)))
}

func TestOverviewFitsEachTerminal(t *testing.T) {
	for w := 1; w < 130; w += 3 {
		for h := 1; h < 12; h++ {
			lines := strings.Split(ansi.Strip(sampleOverview(w, h).View()), "\n")
			if len(lines) != h {
				t.Fatalf("%d lines on a terminal of %d x %d", len(lines), w, h)
			}
			for _, l := range lines {
				if width(l) > w {
					t.Fatalf("%d columns on a terminal of %d x %d: %q", width(l), w, h, l)
				}
			}
		}
	}
}

func TestAClusterOpensAndCloses(t *testing.T) {
	o := sampleOverview(100, 20)
	type step struct {
		keys string
		// shows holds what the screen then has.
		shows string
	}
	for _, s := range []step{
		{"enter", "general"},
		{"esc", "3 clusters, 1 read"},
		{"down down enter", "legacy"},
		{"left", "3 clusters"},
		{"home enter enter", "ip-10-0-14-5"},
		{"esc", "general"},
		{"? esc", "general"},
		{"/ x y z esc", "general"},
		{"esc", "3 clusters"},
	} {
		for k := range strings.FieldsSeq(s.keys) {
			o = o.Update(Key(k))
		}
		if screen := overviewText(o); !strings.Contains(screen, s.shows) {
			t.Fatalf("after %s the screen has no %q:\n%s", s.keys, s.shows, screen)
		}
	}
	if o.HasQuit() || !o.Update(Key("q")).HasQuit() || !o.Update(Key("enter")).Update(Key("q")).HasQuit() {
		t.Error("q quits, from the table and from a cluster")
	}
	if o.Update(From{7, Tick{}}).HasQuit() || NewOverview(nil).Update(Key("enter")).HasQuit() {
		t.Error("a message of no cluster quits")
	}
}
