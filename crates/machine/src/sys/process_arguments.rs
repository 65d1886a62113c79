//! Parses the answer of `sysctl(KERN_PROCARGS2)` about a process on macOS: its arguments and its
//! environment.

/// The strings as they are in memory, without the zeros at their ends.
type Strings<'a> = Vec<&'a [u8]>;

/// Splits `block` into the arguments and the environment, `NAME=value` each. Returns `None` if the
/// block is malformed.
///
/// The number of arguments comes first, in the machine's byte order. Then come the executed path,
/// padded with zeros, the arguments and the environment, each with a zero at its end.
pub fn split(block: &[u8]) -> Option<(Strings<'_>, Strings<'_>)> {
    let (n_arguments, rest) = block.split_first_chunk()?;
    let n_arguments = usize::try_from(i32::from_ne_bytes(*n_arguments)).ok()?;
    let path_end = rest.iter().position(|&byte| byte == 0)?;
    let strings = &rest[path_end..];
    let first = strings.iter().position(|&byte| byte != 0).unwrap_or(strings.len());
    let mut strings = strings[first..].split(|&byte| byte == 0);
    let arguments: Vec<_> = strings.by_ref().take(n_arguments).collect();
    // After the environment and an empty string come other strings, for the loader.
    let environment = strings.take_while(|entry| !entry.is_empty()).collect();
    (arguments.len() == n_arguments).then_some((arguments, environment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_environment_are_told_apart() {
        let block =
            [&2_i32.to_ne_bytes()[..], b"/bin/sh\0\0\0\0sh\0\0HOME=/\0A=b=c\0\0ptr_munge=\0"]
                .concat();
        let (arguments, environment) = split(&block).unwrap();
        assert_eq!(arguments, [&b"sh"[..], b""]);
        assert_eq!(environment, [&b"HOME=/"[..], b"A=b=c"]);
    }

    #[test]
    fn what_is_cut_off_or_hidden_is_no_trouble() {
        assert_eq!(split(b""), None);
        assert_eq!(split(&7_i32.to_ne_bytes()), None);
        assert_eq!(split(&(-1_i32).to_ne_bytes()), None);
        let of = |n: i32, rest: &[u8]| [&n.to_ne_bytes()[..], rest].concat();
        assert_eq!(split(&of(3, b"/x\0\0a\0b")), None);
        assert_eq!(split(&of(1, b"/x\0\0a\0")), Some((vec![&b"a"[..]], vec![])));
    }
}
