package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// tableOfGPUs and tableOfEFA are files of priceTables, with the devices that DRA drivers were seen to publish.
const (
	tableOfGPUs = "pkg/providers/drametadata/zz_generated_gpu_metadata.go"
	tableOfEFA  = "pkg/providers/drametadata/zz_generated_efa_metadata.go"
)

// deviceDriver is a DRA driver with devices in the catalog.
type deviceDriver struct {
	name, table string
	// device is what the names of its devices begin with; a number from 0 follows.
	device string
	// unset are attributes that the driver publishes with a value that depends on the software of the node, sorted: all
	// devices of a node have the same.
	unset []string
}

// deviceDrivers are the drivers, by name.
var deviceDrivers = []deviceDriver{
	{name: "dra.net", table: tableOfEFA, device: "efa-"},
	{name: "gpu.nvidia.com", table: tableOfGPUs, device: "gpu-", unset: []string{"cudaDriverVersion", "driverVersion"}},
}

// deviceFields are the attributes and capacities of a device, as name=kind:value, sorted.
type deviceFields []string

// deviceTable holds devices by type and driver, in the order of their numbers.
type deviceTable map[string]map[string][]deviceFields

// readDevices reads the tables of all drivers.
func readDevices() (deviceTable, error) {
	out := deviceTable{}
	for _, d := range deviceDrivers {
		text, err := priceTables.read(d.table)
		if err != nil {
			return nil, err
		}
		if err := out.add(d, text); err != nil {
			return nil, fmt.Errorf("%s: %w", d.table, err)
		}
	}
	return out, nil
}

// add reads a Go file with one literal: by type, the number of devices, and each device.
func (t deviceTable) add(d deviceDriver, text []byte) error {
	types := literal(text)
	if len(types) == 0 {
		return fmt.Errorf("no types")
	}
	for name, e := range types {
		fields := pairs(e)
		var devices []deviceFields
		for _, e := range elements(fields["Devices"]) {
			of, err := fieldsOf(e)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, attribute := range d.unset {
				of = append(of, attribute+"=?:")
			}
			slices.Sort(of)
			devices = append(devices, of)
		}
		if n, err := strconv.Atoi(word(fields["Count"])); err != nil || n != len(devices) || n == 0 {
			return fmt.Errorf("%s: %d devices, and a count of %q", name, len(devices), word(fields["Count"]))
		}
		if t[name] == nil {
			t[name] = map[string][]deviceFields{}
		}
		t[name][d.name] = devices
	}
	return nil
}

// elements are those of a list literal.
func elements(e ast.Expr) []ast.Expr {
	if literal, ok := e.(*ast.CompositeLit); ok {
		return literal.Elts
	}
	return nil
}

// deviceKinds are the letters of values, by the field of the literal that has them.
var deviceKinds = map[string]string{"StringValue": "s", "VersionValue": "v", "IntValue": "i", "BoolValue": "b", "Value": "q"}

// fieldsOf reads the attributes and capacities of one device.
func fieldsOf(device ast.Expr) (deviceFields, error) {
	var out deviceFields
	for part, e := range pairs(device) {
		if part != "Attributes" && part != "Capacity" {
			return nil, fmt.Errorf("unknown part %q of a device", part)
		}
		for name, value := range pairs(e) {
			given := pairs(value)
			for field, e := range given {
				call, ok := e.(*ast.CallExpr)
				if kind := deviceKinds[field]; ok && kind != "" && len(call.Args) == 1 && len(given) == 1 {
					out = append(out, name+"="+kind+":"+word(call.Args[0]))
					continue
				}
				return nil, fmt.Errorf("unknown value of %s", name)
			}
		}
	}
	return out, nil
}

// encodeDevices writes the file of devices that the package offline documents.
func encodeDevices(t deviceTable) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "dovetail-ec2-devices 1")
	fmt.Fprintln(&b, "source", priceTables.path, priceTables.version)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		for _, d := range deviceDrivers {
			for i, fields := range t[name][d.name] {
				fmt.Fprintf(&b, "%s\t%s\t%s%d\t%s\n", name, d.name, d.device, i, strings.Join(fields, "\t"))
			}
		}
	}
	return b.Bytes()
}
