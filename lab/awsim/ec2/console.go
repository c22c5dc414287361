package ec2

import "strings"

// maxConsole is how much of the end of its console output EC2 keeps for an instance, in bytes.
const maxConsole = 64 << 10

// console is the output of one instance.
type console struct {
	text strings.Builder
}

// append adds to an instance's console; output of an unknown instance goes nowhere.
func (f *instances) append(id, text string) {
	if f.byID[id] == nil {
		return
	}
	if f.consoles[id] == nil {
		f.consoles[id] = &console{}
	}
	f.consoles[id].text.WriteString(text)
}

// output returns the last part of an instance's console.
func (f *instances) output(id string) string {
	c := f.consoles[id]
	if c == nil {
		return ""
	}
	text := c.text.String()
	return text[max(0, len(text)-maxConsole):]
}
