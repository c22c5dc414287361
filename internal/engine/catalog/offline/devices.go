package offline

import (
	"errors"
	"fmt"
	"strings"
)

// The file of devices starts with the line "dovetail-ec2-devices 1" and lines "source TEXT". Then it has a line for each
// device that a DRA driver publishes on a node of a type, sorted by type, driver and number of the device. Fields are
// separated by tabs: type, driver, device, then its attributes and capacities as NAME=KIND:VALUE, sorted, with the kinds
// of DevicePropertyKind.
const devicesMagic = "dovetail-ec2-devices 1"

// Devices are the devices that DRA drivers publish on a node, by type and driver.
type Devices map[string]map[string][]Device

// Device is a device as its driver publishes it.
type Device struct {
	Name       string
	Properties []DeviceProperty
}

// DeviceProperty is an attribute or a capacity of a device.
type DeviceProperty struct {
	Name  string
	Kind  DevicePropertyKind
	Value string // as text
}

// DevicePropertyKind is the form of a property's value.
type DevicePropertyKind string

// Kinds of attributes, and DeviceCapacity.
const (
	DeviceString  DevicePropertyKind = "s"
	DeviceVersion DevicePropertyKind = "v"
	DeviceInteger DevicePropertyKind = "i"
	DeviceBoolean DevicePropertyKind = "b"
	// DeviceUnknown is an attribute with a value that depends on the software of the node.
	DeviceUnknown  DevicePropertyKind = "?"
	DeviceCapacity DevicePropertyKind = "q" // a quantity
)

// LoadDevices decodes the embedded devices, anew on each call. An error means that the build is broken.
func LoadDevices() (Devices, error) {
	out := Devices{}
	return out, (&Catalog{}).open("devices", out.parse)
}

func (d Devices) parse(text []byte) error {
	lines := newLines(text)
	if lines.next() != devicesMagic {
		return fmt.Errorf("not in the format %q", devicesMagic)
	}
	line := lines.next()
	for strings.HasPrefix(line, "source ") {
		line = lines.next()
	}
	for ; line != ""; line = lines.next() {
		fields := strings.Split(line, "\t")
		if len(fields) < 3 {
			return fmt.Errorf("%q has %d fields", line, len(fields))
		}
		device := Device{Name: fields[2]}
		for _, text := range fields[3:] {
			name, rest, _ := strings.Cut(text, "=")
			kind, value, found := strings.Cut(rest, ":")
			if !found {
				return fmt.Errorf("%s %s: %q is not NAME=KIND:VALUE", fields[0], fields[2], text)
			}
			device.Properties = append(device.Properties, DeviceProperty{name, DevicePropertyKind(kind), value})
		}
		if d[fields[0]] == nil {
			d[fields[0]] = map[string][]Device{}
		}
		d[fields[0]][fields[1]] = append(d[fields[0]][fields[1]], device)
	}
	if len(d) == 0 {
		return errors.New("no devices")
	}
	return nil
}
