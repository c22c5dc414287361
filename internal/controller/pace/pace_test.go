package pace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/controller/pace"
)

func TestPaceIsForSimulatedAccountsOnly(t *testing.T) {
	local, remote := "http://127.0.0.1:4566", "https://ec2.eu-west-1.amazonaws.com"
	for _, tt := range []struct {
		name, value string
		endpoint    *string
		services    []string
		want        pace.Pace
		refused     string
	}{
		{name: "not set, real account", want: 1},
		{name: "real pace, real account", value: "1", want: 1},
		{name: "simulated", value: "5", endpoint: &local, want: 5},
		{name: "simulated, IPv6", value: "5", endpoint: new("http://[::1]:4566"), want: 5},
		{name: "real account", value: "5", refused: "AWS_ENDPOINT_URL is not set"},
		{name: "endpoint of AWS", value: "5", endpoint: &remote, refused: remote},
		{name: "a name may be any machine", value: "5", endpoint: new("http://localhost:4566"), refused: "localhost"},
		{name: "one service elsewhere", value: "5", endpoint: &local, services: []string{"AWS_ENDPOINT_URL_EC2=" + remote}, refused: remote},
		{name: "not a number", value: "fast", endpoint: &local, refused: "whole number"},
		{name: "slower", value: "0", endpoint: &local, refused: "whole number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			environ := append([]string{"PATH=/bin"}, tt.services...)
			if tt.value != "" {
				environ = append(environ, pace.Variable+"="+tt.value)
			}
			got, err := pace.Read(environ, tt.endpoint)
			if (err == nil) != (tt.refused == "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Fatalf("error %v, want one with %q", err, tt.refused)
			}
			if got != tt.want {
				t.Errorf("pace %d, want %d", got, tt.want)
			}
		})
	}
}

func TestPaceDividesWaits(t *testing.T) {
	for p, want := range map[pace.Pace]time.Duration{0: 15 * time.Second, 1: 15 * time.Second, 5: 3 * time.Second} {
		if got := p.Of(15 * time.Second); got != want {
			t.Errorf("at pace %d a wait of 15s takes %v, want %v", p, got, want)
		}
	}
}
