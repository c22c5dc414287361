package scale

import (
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Size)
		want   string
	}{
		{"that of the bars", func(*Size) {}, ""},
		{"small", func(s *Size) { *s = Size{Nodes: 100, Pods: 2000, Pending: 600, Churn: 10, Window: time.Second} }, ""},
		{"too few nodes", func(s *Size) { s.Nodes = 2 }, "2 nodes are not between 6 and 15000"},
		{"too many pods", func(s *Size) { s.Pods = 1_000_000 }, "not between 5 and 30 per node"},
		{"nothing pending", func(s *Size) { s.Pending = 0 }, "must be at least 1"},
		{"no window", func(s *Size) { s.Window = 0 }, "shorter than a second"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := DefaultSize()
			tt.change(&s)
			err := s.Check()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestCheckMemory(t *testing.T) {
	for _, tt := range []struct {
		name, meminfo, want string
		size                Size
	}{
		{
			"too little", "MemTotal:  16000000 kB\nMemAvailable:   4194304 kB\n",
			"about 14.4 GiB of memory, and 4.0 GiB are available: choose fewer", DefaultSize(),
		},
		{"just enough", "MemAvailable:   15100000 kB\n", "", DefaultSize()},
		{"a few nodes need little", "MemAvailable:   4194304 kB\n", "", Size{Nodes: 30, Pods: 300}},
		{"not known", "MemTotal:  16000000 kB\n", "", DefaultSize()},
		{"not understood", "MemAvailable:   many kB\n", "", DefaultSize()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.size.fits(tt.meminfo)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestReportNamesTheBarsThatAreMissed(t *testing.T) {
	r := Report{Size: DefaultSize(), Machine: "2 × test"}
	if missed := r.Missed(); len(missed) > 0 {
		t.Errorf("missed although all is 0: %v", missed)
	}
	r.Start.ReadySeconds, r.Rest.CorePercent = 30, 4.9
	r.Rest.EC2CallsPerMinute = map[string]float64{"DescribeInstances": 10, "DescribeInstances" + nextPage: 500}
	if missed := r.Missed(); len(missed) != 1 || missed[0] != "start: ready" {
		t.Errorf("missed: %v", missed)
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"5000 nodes, 100000 pods; 2 × test", "MISSED", "4.9 % of a core", "DescribeInstances 10.0"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
}
