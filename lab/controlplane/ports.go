package controlplane

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A reservation keeps a free TCP port of the loopback interface from everyone else: a socket that
// is bound to it and never listens. With SO_REUSEPORT on both sides, a child of the same user can
// listen on the port, any number of times, and there is no moment at which a stranger could take
// it. Until the child listens, connections are rejected.
type portReservation struct {
	Port int
	fd   int
}

func reservePort() (*portReservation, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	unix.CloseOnExec(fd)
	port, err := bindLoopback(fd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reserve a port: %w", err), unix.Close(fd))
	}
	return &portReservation{Port: port, fd: fd}, nil
}

func bindLoopback(fd int) (port int, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	in4, ok := addr.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("bound to a %T", addr)
	}
	return in4.Port, nil
}

func (r *portReservation) release() error { return unix.Close(r.fd) }

// address is what a client dials, on the port's own interface.
func (r *portReservation) address() string { return fmt.Sprintf("127.0.0.1:%d", r.Port) }

func (r *portReservation) url() string { return "https://" + r.address() }
