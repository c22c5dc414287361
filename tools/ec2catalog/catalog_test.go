package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func generated(t *testing.T) []byte {
	t.Helper()
	text, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheSameSourcesGiveTheSameText(t *testing.T) {
	if !bytes.Equal(generated(t), generated(t)) {
		t.Error("two runs differ")
	}
}

func TestTheCommittedFileIsUpToDate(t *testing.T) {
	if err := run(filepath.Join("..", "..", "internal", "engine", "catalog", "offline", "ec2.tsv.gz"), true /* check */); err != nil {
		t.Error(err)
	}
}

// The VPC CNI also ships how many pods fit a type, computed from the API's answers by another program.
func TestPodsAgreeWithTheCNI(t *testing.T) {
	dir, err := download(networkLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := podTable(t, filepath.Join(dir, "misc", "eni-max-pods.txt"))
	compared := 0
	lines := strings.Split(string(generated(t)), "\n")
	header := strings.Split(lines[7], "\t")
	for _, line := range lines[8 : len(lines)-1] {
		fields := map[string]string{}
		for i, text := range strings.Split(line, "\t") {
			fields[header[i]] = text
		}
		pods, ok := want[fields["name"]]
		if !ok {
			continue
		}
		compared++
		_, enis, _ := strings.Cut(strings.Split(fields["cards"], ",")[integer(t, "0"+fields["card"])], "/")
		if got := integer(t, enis)*(integer(t, fields["ipv4"])-1) + 2; got != pods {
			t.Errorf("%s: %d pods, the CNI says %d", fields["name"], got, pods)
		}
	}
	if compared < 900 {
		t.Errorf("only %d types compared", compared)
	}
}

func podTable(t *testing.T, path string) map[string]int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, pods, ok := strings.Cut(s.Text(), " ")
		if ok && name != "#" {
			table[name] = integer(t, pods)
		}
	}
	return table
}

func integer(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestClockOfProcessor(t *testing.T) {
	got := clockOfProcessor([]instance{
		{Processor: "agreed", Clock: "2.5 GHz"},
		{Processor: "agreed", Clock: ""},
		{Processor: "agreed", Clock: "2.5 GHz"},
		{Processor: "disputed", Clock: "2.5 GHz"},
		{Processor: "disputed", Clock: "Up to 3 GHz"},
		{Processor: "disputed", Clock: "2.5 GHz"},
		{Processor: "unknown", Clock: ""},
	})
	if len(got) != 1 || got["agreed"] != 2.5 {
		t.Errorf("got %v, want only agreed, 2.5", got)
	}
}
