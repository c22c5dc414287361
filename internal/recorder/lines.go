package recorder

import (
	"encoding/json"
	"time"
)

// line is one line of the payload of a frame with a part of a pass. Exactly one field is set.
type line struct {
	Pass    *passLine       `json:"pass,omitempty"`
	Object  *objectLine     `json:"object,omitempty"`
	Gone    *objectKey      `json:"gone,omitempty"`
	Type    *typeLine       `json:"type,omitempty"`
	List    *listLine       `json:"list,omitempty"`
	Pools   *[]poolLine     `json:"pools,omitempty"`
	Buffers *[]bufferRecord `json:"buffers,omitempty"`
	Config  *configRecord   `json:"config,omitempty"`
	Marks   *marksRecord    `json:"marks,omitempty"`
	Call    *callLine       `json:"call,omitempty"`
}

// passLine is the first line.
type passLine struct {
	ID   string   `json:"id"`
	Kind PassKind `json:"kind"`
	// Now is the instant of the Snapshot.
	Now time.Time `json:"now"`
	// Version is that of the program.
	Version string `json:"version,omitempty"`
	// Excluded are pods and DaemonSets that the pass left out of the Snapshot.
	Excluded *Exclusion `json:"excluded,omitempty"`
}

// objectKey identifies an object. UID is empty for objects that have none, which no API server makes.
type objectKey struct {
	Kind string `json:"kind"`
	UID  string `json:"uid,omitempty"`
	Name string `json:"name,omitempty"`
}

// objectLine is a new state of an object.
type objectLine struct {
	objectKey
	Version string          `json:"version,omitempty"`
	Object  json.RawMessage `json:"object"`
}

// typeLine is an instance type, by the hash of its content.
type typeLine struct {
	Hash string          `json:"hash"`
	Type json.RawMessage `json:"type"`
}

// listLine is a list of instance types by their hashes.
type listLine struct {
	Hash  string   `json:"hash"`
	Types []string `json:"types"`
}

// poolLine is what a pool may launch.
type poolLine struct {
	Name           string    `json:"name"`
	NodeClassLabel [2]string `json:"nodeClassLabel"`
	// List is empty if the pool launches nothing.
	List string `json:"list,omitempty"`
}

// callLine is a call of the engine.
type callLine struct {
	Name string `json:"name"`
	// In and Out are absent if they equal those of the last call of the name.
	In  json.RawMessage `json:"in,omitempty"`
	Out json.RawMessage `json:"out,omitempty"`
}
