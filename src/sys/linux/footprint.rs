//! What a process that only waits has of its program in its page tables.
//!
//! The kernel maps sixteen pages around each that is touched, so that a start leaves some thousands behind. They cost no memory of
//! their own, but a process that ends gives each of them back: of hundreds of keepers that end at once, that was half the work, and
//! the records of the last waited for it.

use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Lets go of the pages of code; those that are used again come back from the page cache. Nothing is changed where that can't be.
pub fn let_go_of_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for code in maps.lines().filter_map(code_of_file) {
        // SAFETY: no memory changes. Nothing here writes to its code, so that its pages hold what the file holds, also when they
        // are read anew; a debugger's breakpoint is lost.
        let _ = unsafe { madvise(code.start as *mut _, code.len(), Advice::LinuxDontNeed) };
    }
}

/// The addresses of a line of `/proc/self/maps`, if they are a file's code.
fn code_of_file(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (addresses, access) = (fields.next()?, fields.next()?);
    let inode = fields.nth(2)?;
    let (start, end) = addresses.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    (access == "r-xp" && inode != "0").then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_found() {
        let program = "5580a000-5590b000 r-xp 0000a000 fe:00 1234                       /usr/bin/a program";
        assert_eq!(code_of_file(program), Some(0x5580_a000..0x5590_b000));
        for other in [
            "5590b000-5590c000 r--p 0010b000 fe:00 1234                       /usr/bin/a program",
            "5590c000-5590d000 rw-p 0010c000 fe:00 1234                       /usr/bin/a program",
            "5590d000-5590e000 rwxp 0010d000 fe:00 1234                       /usr/bin/a program",
            "7ffd1000-7ffd3000 r-xp 00000000 00:00 0                          [vdso]",
            "",
        ] {
            assert_eq!(code_of_file(other), None, "{other}");
        }
    }

    /// How much of the code of files is in the page tables of this process, in kilobytes.
    fn mapped() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut is_code, mut size) = (false, 0);
        for line in maps.lines() {
            if !line.starts_with(|letter: char| letter.is_ascii_uppercase()) {
                is_code = code_of_file(line).is_some();
            } else if let Some(resident) = line.strip_prefix("Rss:").filter(|_| is_code) {
                size += resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        size
    }

    #[test]
    fn what_was_let_go_of_comes_back_when_it_is_used() {
        // What other tests run meanwhile is mapped again at once; without letting go there is never less.
        let mut looks = std::iter::repeat_with(|| {
            let before = mapped();
            let_go_of_code();
            (before, mapped())
        });
        assert!(
            looks.by_ref().take(1_000).any(|(before, after)| after > 0 && after < before),
            "{:?} KiB",
            looks.next()
        );
    }
}
